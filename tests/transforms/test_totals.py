"""Running totals of training loops."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed

LOOP = """\
def train_epoch():
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        {backward}
        optimizer.step()
        {body}
{reduce}    return {result}
"""


def script(body: str, result: str, reduction: str = "") -> tuple[str, str]:
    reduce = f'    total = accelerator.reduce(total, reduction="{reduction}")\n' if reduction else ""
    before = LOOP.format(backward="loss.backward()", body=body, reduce="", result=result)
    return before, LOOP.format(backward="accelerator.backward(loss)", body=body, reduce=reduce, result=result)


@pytest.mark.parametrize(
    ("body", "result"),
    [("total += 1", "total"), ("total += loss.item()", "None"), ("total = loss.item()", "1")],
)
def test_counters_and_totals_nobody_reads_stay(body: str, result: str) -> None:
    before, after = script(body, result)
    conversion = check_transformed("ready", before, after, epoch="train_epoch()")
    assert "ACC302" not in {f.code for f in conversion.applied}


def test_totals_outside_of_training_stay() -> None:
    check_noop("epoch", "total = 0\nfor k in range(3):\n    total += k\nn = total", "ACC302")


@pytest.mark.parametrize(
    ("body", "result", "reduction"),
    [
        ("total += loss.item()", "total / len(loader)", "mean"),
        ("total = total + loss.item()", "total / len(loader)", "mean"),
        ("total += float(loss)", "total / len(loader)", "mean"),
        ("total += loss", "total / len(loader)", "mean"),
        ("total += loss.item() * x.size(0)", "total / len(loader.dataset)", "sum"),
        ("total += (output.argmax(1) == y).sum().item()", "total / len(loader.dataset)", "sum"),
        ("total += x.size(0)", "total", "sum"),
        ("total += len(x)", "total", "sum"),
    ],
)
def test_totals(body: str, result: str, reduction: str) -> None:
    check_transformed("ready", *script(body, result, reduction), epoch="train_epoch()")
