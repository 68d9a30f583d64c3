"""A count of rounds that the converted script multiplies by the number of processes, and one that it leaves."""

from pathlib import Path

import pytest

from accelify.verify.compare.verdict import Verdict
from accelify.verify.multiplied_counts import multiplied_counts
from tests.verify import scripts
from tests.verify.test_rounds_alike import VerifyPair, per_process

FILE = Path("/project/train.py")

ANNEALED = """\
step = 0
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y) * min(1.0, (1 + step) / 8)
        loss.backward()
        opt.step()
        step += 1
"""


def multiplied(before: str, after: str) -> list[str]:
    rows = before.splitlines()
    found = multiplied_counts({FILE: (before, after)})
    return [rows[one.extent[0] - 1][one.extent[1] : one.extent[3]] for one in found]


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("step += 1", "step += accelerator.num_processes", "1"),
        ("step += 2", "step += 2 * accelerator.num_processes", "2"),
        ("self.step += 1", "self.step += dist.get_world_size()", "1"),
        ("beta = min(1, i / 40)", "beta = min(1, i * accelerator.num_processes / 40)", "i"),
        ("beta = n * len(b) + i", "beta = (n * len(b) + i) * self.acc.num_processes", "n * len(b) + i"),
        ("self.beta = 1 + i / 4", "self.beta = 1 + world * i / 4", "i"),
    ],
)
def test_what_is_multiplied_of_a_count(before: str, after: str, part: str) -> None:
    frame = "for i, b in enumerate(loader):\n    {}\n"
    assert multiplied(frame.format(before), f"world = get_world_size()\n{frame.format(after)}") == [part]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lr = base * 0.1", "lr = base * 0.1 * accelerator.num_processes"),
        ("seen += x.size(0)", "seen += x.size(0) * accelerator.num_processes"),
        ("step -= 1", "step -= accelerator.num_processes"),
        ("step += 1", "step += 3"),
        ("beta = i / 40 + i", "beta = i * accelerator.num_processes / 40 + i * accelerator.num_processes"),
        ("length = i // 4", "length = i // 4 // accelerator.num_processes"),
    ],
)
def test_what_is_no_count_is_left(before: str, after: str) -> None:
    frame = "for i, x in enumerate(loader):\n    {}\n"
    assert multiplied(frame.format(before), frame.format(after)) == []


@pytest.mark.distributed
def test_a_count_that_goes_by_all_processes_is_compared_with_one_that_does(verify_pair: VerifyPair) -> None:
    before, after = scripts.plain(loop=ANNEALED), per_process(scripts.converted(loop=ANNEALED))
    report = verify_pair(before, after.replace("step += 1", "step += accelerator.num_processes"))
    assert report.comparisons[-1].overall is Verdict.ROUNDING
    assert len(report.counts) == 1


@pytest.mark.distributed
def test_a_count_that_is_multiplied_by_another_number_is_different(verify_pair: VerifyPair) -> None:
    before, after = scripts.plain(loop=ANNEALED), per_process(scripts.converted(loop=ANNEALED))
    report = verify_pair(before, after.replace("step += 1", "step += 1 + accelerator.process_index * 0 + 1"))
    assert report.comparisons[-1].overall is Verdict.DIFFERENT
