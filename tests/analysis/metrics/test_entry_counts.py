"""Numbers that count entries of a batch."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.metrics.entry_counts import count_of
from tests.transforms.support import convert


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


def test_they_keep_the_data_whole() -> None:
    loop = """
    total = number = 0
    for a, b in test_loader:
        labeled = b.data.ne(-1).sum()
        output = model(a)
        total = total + (output.argmax(1) == b).sum() / labeled * labeled
        number = number + labeled
    print(total / number)
    """
    conversion = convert(epoch=loop)
    assert "gather_for_metrics" not in conversion.new_text
    assert "`labeled` counts entries" in next(f.message for f in conversion.remaining if f.code == "ACC303")
