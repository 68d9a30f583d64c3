"""Numbers that count entries of a batch."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.metrics.entry_counts import count_of
from tests.transforms.support import check_transformed, codes, names_figures

LOOP = """
    total = number = 0
    for a, b in test_loader:
        {}output = model(a)
        {}total = total + (output.argmax(1) == b).sum() / labeled * labeled
        number = number + labeled
    shown = "{{:.3f}}".format(total / number)
    """
COUNT = "labeled = b.data.ne(-1).sum()\n        "


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("y.ne(-1).sum()", "y"),
        ("y.data.ne(NO_LABEL).sum()", "y"),
        ("(y != args.pad).float().sum().item()", "y"),
        ("torch.sum(y > 0)", "y"),
        ("y.sum()", None),
        ("(y != -1).sum(1)", None),
        ("(y != other[0]).sum()", None),
        ("(model(y) != 1).sum()", None),
        ("(y == y).sum()", None),
    ],
)
def test_what_counts_entries(text: str, name: str | None) -> None:
    assert count_of(ast.parse(text, mode="eval").body) == name


def test_they_are_taken_again_of_what_is_gathered() -> None:
    """Gathered as they are, N processes would have N of them, which no format takes."""
    gathered = "output, b = accelerator.gather_for_metrics((output, b))\n        "
    conversion = check_transformed("epoch", LOOP.format(COUNT, ""), LOOP.format(COUNT, gathered + COUNT))
    assert "ACC303" not in codes(conversion)
    assert not names_figures(conversion)


def test_what_is_kept_before_the_model_counts_the_gathered_entries() -> None:
    before = """
    counts, hits = [], 0
    for a, b in test_loader:
        labeled = b.ne(-1).sum()
        counts.append({})
        output = model(a)
        {}hits = hits + (output.argmax(1) == b).sum()
    """
    gathered = "output, b = accelerator.gather_for_metrics((output, b))\n        "
    whole = "accelerator.gather_for_metrics(b).ne(-1).sum()"
    check_transformed("epoch", before.format("labeled", ""), before.format(whole, gathered))
