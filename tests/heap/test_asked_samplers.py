"""What Python calls of a loader's sampler and data set where a script asks for the loader's length, or goes over it."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
from torch.utils.data import DataLoader
from {package} import Accelerator
accelerator = Accelerator()


class Rows:
    def __len__(self):
        print("length")
        return 8

    def __getitem__(self, index):
        return index


class Numbers:
    def __len__(self):
        print("length")
        return 8

    def __iter__(self):
        print("pass")
        return iter(range(8))


class Quiet(Numbers):
    def __len__(self):
        return 8


loader = DataLoader({arguments})
{prepared}
{body}
"""
PREPARED = "loader = accelerator.prepare(loader)"


def printed(
    arguments: str, body: str, prepared: str = PREPARED, package: str = "accelify.runtime"
) -> list[str]:
    text = FRAME.format(arguments=arguments, body=body, prepared=prepared, package=package)
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    lines = text.split("\n")
    return [lines[one.line - 1].strip() for one in checked.of(Status.NAMED) if one.demand == "once"]


@pytest.mark.parametrize(
    "arguments", ["Rows()", "Rows(), sampler=Numbers()", "Rows(), batch_sampler=Numbers(), num_workers=2"]
)
@pytest.mark.parametrize("prepared", [PREPARED, ""])
def test_the_length_of_a_loader_asks_for_that_of_what_numbers_its_samples(
    arguments: str, prepared: str
) -> None:
    assert printed(arguments, "size = len(loader)", prepared) == ['print("length")']


def test_a_length_that_is_not_asked_for() -> None:
    assert printed("Rows(), sampler=Quiet()", "size = len(loader)") == []
    assert printed("Rows()", "for x in loader:\n    pass") == []


def test_all_go_through_the_sampler_of_a_plain_loader_and_rank_0_through_that_of_a_prepared_one() -> None:
    body = "for step, x in enumerate(loader):\n    pass"
    assert printed("Rows(), sampler=Quiet()", body, prepared="") == ['print("pass")']
    assert printed("Rows(), sampler=Quiet()", body) == []
    assert printed("Rows(), sampler=Quiet()", body, package="accelerate") == ['print("pass")']
