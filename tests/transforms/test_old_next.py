"""Batches drawn by the iterators' old method."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, codes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("first = iter(loader).next()", "first = next(iter(loader))"),
        (
            "batches = iter(loader)\na, b = batches.next()\nwide = batches.next( )[0].shape",
            "batches = iter(loader)\na, b = next(batches)\nwide = next(batches)[0].shape",
        ),
        (
            "first = iter(DataLoader(data, batch_size=2)).next()",
            "first = next(iter(DataLoader(data, batch_size=2)))",
        ),
        ("first, _ = (\n    iter(loader)\n    .next()\n)", "first, _ = (\n    next(iter(loader))\n)"),
    ],
)
def test_batches_of_loaders(before: str, after: str) -> None:
    assert "ACC122" in codes(check_transformed("ready", before, after))


@pytest.mark.parametrize(
    "snippet",
    [
        "first = next(iter(loader))",
        "first = iter(loader).__next__()",
        "class Reader:\n    def __init__(self):\n        self.batches = iter(loader)\n"
        "    def next(self):\n        return next(self.batches)\nfirst = Reader().next()",
        "def next(it):\n    return it\nfirst = iter(loader).next()",
    ],
)
def test_others_are_left_alone(snippet: str) -> None:
    check_noop("ready", snippet, "ACC122")
