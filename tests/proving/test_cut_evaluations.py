"""Evaluations that end after a number of batches: each process goes through so many of its own."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import convert

EVALUATION = """
model.eval()
hits = done = 0
with torch.no_grad():
    for j, (a, b) in enumerate({loader}):
        {first}
        hits += (model(a).argmax(1) == b).sum().item()
        {last}
        done += 1
print(hits)
"""


def _said(first="pass", last="pass", loader="test_loader", batch_size="per-process"):
    epoch = EVALUATION.format(loader=loader, first=first, last=last)
    found = convert(batch_size, imports="import itertools", setup="LIMIT = 3", epoch=epoch)
    prove([found], found)
    return [f.message for f in found.remaining if f.code == "ACC706"]


@pytest.mark.parametrize(
    ("test", "where"),
    [
        ("j >= LIMIT", "first"),
        ("j == 2", "last"),
        ("LIMIT <= j + 1", "last"),
        ("done == LIMIT", "first"),
    ],
)
def test_the_number_of_batches_is_named(test, where):
    (message,) = _said(**{where: f"if {test}: break"})
    assert "a loop ends by a number of rounds, which each of N processes makes" in message
    assert f"`{test}`" in message
    assert not _said(**{where: f"if {test}: break"}, batch_size="total"), "each takes its part of so many"


def test_what_is_cut_off_before():
    (message,) = _said(loader="itertools.islice(test_loader, 2)")
    assert "`itertools.islice(test_loader, 2)`" in message
    assert not _said(loader="itertools.islice(test_loader, 2)", batch_size="total")
    assert not _said(loader="itertools.islice(test_loader, len(test_loader) // 2)")
    assert not _said(loader="itertools.islice(test_loader, 1, None)")


@pytest.mark.parametrize(
    "stop",
    [
        "if j >= len(test_loader) // 2: break",
        "if hits > LIMIT: break",
        "if j == LIMIT: print(hits)",
        "for n in range(3):\n            if n == j: break",
    ],
    ids=["of its own length", "a figure", "no end", "an inner loop"],
)
def test_other_ends_are_silent(stop):
    assert not _said(last=stop)


def test_a_loop_that_only_looks_is_silent():
    found = convert(
        epoch="for j, (a, b) in enumerate(test_loader):\n    output = model(a)\n    if j == 2: break\n"
    )
    prove([found], found)
    assert not [f for f in found.remaining if f.code in ("ACC412", "ACC706")]
