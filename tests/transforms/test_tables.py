"""Tables of counts that are filled by index, and the largest of a figure."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import check_noop, codes, convert

LOOP = """
def train_epoch():
    {fresh}
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        right = output.argmax(1) == y
        {body}
    return {result}
"""
PAIRS = "for a, b in zip(y.tolist(), output.argmax(1).tolist()):\n            kept[a, b] += 1"
EACH = "for k in range(y.size(0)):\n            kept[y[k]] += right[k].item()\n            seen[y[k]] += 1"


def converted(fresh: str, body: str, **others: str) -> tuple[str, set[str]]:
    result = "kept, seen" if "seen" in fresh else "kept"
    conversion = convert(
        imports="import numpy as np",
        ready=LOOP.format(fresh=fresh, body=body, result=result),
        epoch="print(train_epoch())",
        **others,
    )
    prove([conversion], conversion)
    return conversion.new_text, codes(conversion)


def test_loops_that_share_nothing() -> None:
    snippet = "seen = [0] * 3\nfor k in range(3):\n    seen[k] += 1\nlargest = max(seen[0], 2)"
    check_noop("epoch", snippet, "ACC307")


@pytest.mark.parametrize(
    ("fresh", "body", "line"),
    [
        ("kept = np.zeros((2, 2))", PAIRS, 'kept = accelerator.reduce(kept, reduction="sum")'),
        ("kept = torch.zeros(2, 2)", PAIRS, 'kept = accelerator.reduce(kept, reduction="sum")'),
        (
            "kept, seen = [0, 0], list(0 for _ in range(2))",
            EACH,
            'kept, seen = accelerator.reduce((kept, seen), reduction="sum")',
        ),
        (
            "kept = np.zeros(2)",
            "kept += np.bincount(y.numpy(), minlength=2)",
            'kept = accelerator.reduce(kept, reduction="sum")',
        ),
        ("kept = 0", "kept = max(kept, loss.item())", 'kept = accelerator.reduce(kept, reduction="max")'),
        ("kept = 9", "kept = min(loss.item(), kept)", 'kept = accelerator.reduce(kept, reduction="min")'),
    ],
)
def test_what_is_put_together(fresh: str, body: str, line: str) -> None:
    text, found = converted(fresh, body)
    assert line in text
    assert not {"ACC302", "ACC304"} & found


@pytest.mark.parametrize(
    ("fresh", "body"),
    [
        ("kept, seen = [0, 0], {0: 0, 1: 0}", EACH.replace("seen[y[k]]", "seen[int(y[k])]")),
        ("kept = [0, 0]", "kept[int(y[0])] += measure(loss)"),
    ],
)
def test_what_is_only_named(fresh: str, body: str) -> None:
    text, found = converted(fresh, body, setup="from m import measure")
    assert "accelerator.reduce" not in text
    assert "ACC701" in found
