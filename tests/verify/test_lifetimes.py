"""Models that a loop makes anew are gone before the next round, as in the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accelify.verify.compare import lifetimes
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.nursery import Nursery
from accelify.verify.runs import Job, Run, execute

from . import scripts
from .effect_scripts import differences, run_pair

ROUNDS = (
    "for rate in (0.1, 0.2, 0.3, 0.4):\n"
    "    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1))\n"
    "    opt = torch.optim.SGD(model.parameters(), lr=rate / 100)\n"
    "    PREPARE"
    "    for x, y in loader:\n"
    "        opt.zero_grad()\n"
    "        loss = F.mse_loss(model(x), y)\n"
    "        loss.backward()\n"
    "        opt.step()\n"
    "    KEEP"
)


def texts(keep: str, free: str) -> tuple[str, str]:
    plain = scripts.HEAD + scripts.DATA + "found = []\n" + ROUNDS
    original = plain.replace("    PREPARE", "").replace("KEEP", "model = model\n")
    prepared = (
        "    model, opt, shared = accelerator.prepare(model, opt, loader)\n",
        "in loader:",
        "loss.backward()",
    )
    copy = plain.replace("    PREPARE", prepared[0]).replace(prepared[1], "in shared:")
    copy = copy.replace("loss.backward()", "accelerator.backward(loss)").replace(
        "KEEP", f"{keep}\n    {free}\n"
    )
    return original, scripts.ACCELERATOR + copy


@pytest.mark.distributed
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_kept(nursery: Nursery, tmp_path: Path, processes: int) -> None:
    pair = texts("found.append(model)", "accelerator.free_memory()")
    original, other, lines = run_pair(nursery, tmp_path, pair, processes)
    found = differences(lifetimes.compare(original, other, lines, exact=processes == 1))
    assert any("4 models are alive in place of 1" in sentence for sentence in found), found
    assert any("parameters take up to 4.0 times the original's memory" in sentence for sentence in found), (
        found
    )


def test_layers_that_have_no_size_before_the_first_batch(nursery: Nursery, tmp_path: Path) -> None:
    one, two = (
        text.replace("nn.Linear(5, 8)", "nn.LazyLinear(8)")
        for text in texts("pass", "model, opt, shared = accelerator.free_memory(model, opt, shared)")
    )
    original, other, lines = run_pair(nursery, tmp_path, (one, two), 1)
    assert not differences(lifetimes.compare(original, other, lines, exact=True))


@pytest.mark.distributed
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_let_go_of(nursery: Nursery, tmp_path: Path, processes: int) -> None:
    pair = texts("pass", "model, opt, shared = accelerator.free_memory(model, opt, shared)")
    original, other, lines = run_pair(nursery, tmp_path, pair, processes)
    checks = lifetimes.compare(original, other, lines, exact=processes == 1)
    assert len(checks) == 4
    assert not differences(checks)


TWO = (
    "def run():\n"
    "    one, other = nn.Linear(5, 1), nn.Linear(5, 1)\n"
    "    first = torch.optim.SGD(one.parameters(), lr=0.1)\n"
    "    second = torch.optim.SGD(other.parameters(), lr=0.1)\n"
    "    PREPARE"
    "    for x, y in loader:\n"
    "        F.mse_loss(one(x) + other(x), y).backward()\n"
    "        first.step()\n"
    "        second.step()\n"
    "run()\n"
)


@pytest.mark.distributed
def test_what_a_function_has_until_it_returns(nursery: Nursery, tmp_path: Path) -> None:
    plain = scripts.HEAD + scripts.DATA + TWO
    prepared = "    one, other, first, second = accelerator.prepare(one, other, first, second)\n"
    copy = scripts.ACCELERATOR + plain.replace("    PREPARE", prepared)
    original, other, lines = run_pair(nursery, tmp_path, (plain.replace("    PREPARE", ""), copy), 1)
    assert not differences(lifetimes.compare(original, other, lines, exact=True))


def point(at: str, models: int, size: int = 8) -> dict[str, Any]:
    return {
        "at": at, "models": models, "optimizers": 1, "loaders": 1, "bytes": size * models, "site": ["train.py", 5],
    }  # fmt: skip


def run(*ranks: list[dict[str, Any]]) -> Run:
    return Run("run", len(ranks), [RankRecord(events={"objects": events}) for events in ranks], 0.0)


def test_the_rank_that_has_most_counts() -> None:
    original = run([point("optimizer", 1), point("end", 1)])
    other = run([point("optimizer", 1), point("end", 1)], [point("optimizer", 3), point("end", 1)])
    assert differences(lifetimes.compare(original, other, LineMap({}), exact=False)) == [
        "3 models are alive in place of 1 when line 5 makes another optimizer",
        "parameters take up to 3.0 times the original's memory",
    ]


def test_fewer_are_no_fault() -> None:
    original, other = (
        run([point("optimizer", 2), point("end", 2)]),
        run([point("optimizer", 1), point("end", 1)]),
    )
    assert not differences(lifetimes.compare(original, other, LineMap({}), exact=True))


@pytest.mark.distributed
def test_what_torch_consists_of_is_not_gone_through(nursery: Nursery, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import gc\nprint('to go through:', len(gc.get_objects()))\n" + scripts.plain())
    nursery.ready()
    run = execute(Job(script, steps=1, threads=1, limit=60), nursery)
    assert int(run.output.split("to go through: ")[1].split()[0]) < 100_000
