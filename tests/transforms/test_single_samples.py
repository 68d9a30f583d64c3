"""Samples that are picked out of a batch by their number."""

from __future__ import annotations

import pytest

from tests.transforms.support import DEFAULTS, convert

LAST = "loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)"


def said(batch: str, **places: str) -> list[str]:
    found = convert(imports="from m import show", batch=batch, **places)
    return [f.message for f in found.remaining if f.code == "ACC404"]


@pytest.mark.parametrize("batch", ["show(x[1, 0:1])", "a = x.float()\nshow(a[2, :])", "show(x[1, ...])"])
def test_a_sample_behind_the_first_is_named(batch: str) -> None:
    (message,) = said(batch)
    assert "picks a sample that a process's share of the last, smaller batch may not have" in message


@pytest.mark.parametrize(
    "batch",
    [
        "show(x[0, 0:1])",
        "show(x[-1, 0:1])",
        "show(x[:, 1])",
        "if len(x) > 1:\n    show(x[1, 0:1])",
        "table = show()\nshow(table[1, 0:1])",
        "x = show(x)\nshow(x[1, 0:1])",
        "pair = [x, y]\nshow(pair[1])",
    ],
)
def test_the_first_and_what_is_asked_for_or_no_batch_is_not(batch: str) -> None:
    assert said(batch) == []


def test_a_loader_of_whole_batches_has_every_sample() -> None:
    assert said("show(x[1, 0:1])", ready=LAST, build=DEFAULTS["build"]) == []
