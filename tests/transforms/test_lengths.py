"""Lengths of loaders taken before prepare."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, codes, convert

BUILD = """
loader = DataLoader(data, batch_size=8)
steps = {value}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize("value", ["len(data)", "len(loader.dataset)", "8"])
def test_other_lengths(value: str) -> None:
    check_noop("build", BUILD.format(value=value), "ACC401")


def test_after_prepare() -> None:
    check_noop("ready", "steps = len(loader)", "ACC401")


def test_the_length_that_a_schedule_is_made_with_is_right() -> None:
    made = "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 3)"
    assert "ACC401" not in codes(convert(ready=made, update="optimizer.step()\nscheduler.step()"))


def test_before_prepare() -> None:
    again = "for x, y in train:\n    F.cross_entropy(model(x), y).backward()"
    build = BUILD.replace("loader =", "train =").format(value="len(train)")
    (finding,) = [f for f in convert(build=build, end=again).remaining if f.code == "ACC401"]
    assert "len(train)" in finding.message


@pytest.mark.parametrize(
    ("steps", "rate", "found"),
    [
        ("3 * (len(data) // batch_size)", "0.1 * (1 - n / steps)", True),
        ("len(loader.dataset) / batch_size", "0.1 * (1 - n / steps)", True),
        ("3 * (len(data) // 10)", "0.1 * (1 - n / steps)", False),
        ("3 * (len(data) // batch_size)", "0.1 * (1 - n / 100)", False),
    ],
)
def test_a_learning_rate_by_hand_from_the_number_of_samples(steps: str, rate: str, found: bool) -> None:
    batch = f"n += 1\nfor group in optimizer.param_groups:\n    group['lr'] = {rate}"
    conversion = convert(setup="batch_size = 8", ready=f"n, steps = 0, 1\nsteps = {steps}", batch=batch)
    assert ("ACC401" in {f.code for f in conversion.remaining}) == found
