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
    (finding,) = [f for f in convert(build=BUILD.format(value="len(loader)")).remaining if f.code == "ACC401"]
    assert "len(loader)" in finding.message
