"""What the reports say that means of batches are divided by, where an evaluation stays whole for it."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

LINES = """
n, total = 0, 0.0
for a, b in test_loader:
    output = model(a)
    total += F.cross_entropy(output, b).item()
    n += len(a)
print(total / ({divisor}))
"""
KEPT = "which stays what it was on one process"


@pytest.mark.parametrize(
    ("divisor", "told"),
    [
        ("len(test_loader.dataset)", "the number of samples"),
        ("float(len(data))", "the number of samples"),
        ("n", "the number of samples"),
        ("len(test_loader.dataset) / 8", f"`len(test_loader.dataset) / 8`, {KEPT}"),
        ("int(len(data) / 8)", f"`int(len(data) / 8)`, {KEPT}"),
        ("rounds", f"`rounds`, {KEPT}"),
    ],
)
def test_what_the_means_are_divided_by(divisor: str, told: str) -> None:
    found = convert(ready="rounds = len(data) // 8", epoch=LINES.format(divisor=divisor)).remaining
    (message,) = [f.message for f in found if f.code == "ACC303"]
    assert f"adds up the means of batches and is divided by {told})" in message
