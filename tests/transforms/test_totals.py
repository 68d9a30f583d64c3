"""Running totals of training loops."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert

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
        ("total += loss.item()", "total / len(loader.dataset)", "sum"),
        ("total += loss.item()", "total * 8 / len(loader.dataset)", "sum"),
        ("total += x.size(0)", "total", "sum"),
        ("total += len(x)", "total", "sum"),
    ],
)
def test_totals(body: str, result: str, reduction: str) -> None:
    check_transformed("ready", *script(body, result, reduction), epoch="train_epoch()")


def test_a_counter_that_counts_something_else_afterwards() -> None:
    before = """
    def train_epoch():
        total = count = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
            count += x.size(0)
        first = total / count
        count = 3
        return first, len(data) / count
    """
    text = convert(ready=before, epoch="n = train_epoch()").new_text
    assert 'total, count = accelerator.reduce((total, count), reduction="sum")' in text


def test_metrics_behind_names_and_figures_that_are_not_understood() -> None:
    before, after = script(
        "hit = (output.argmax(1) == y).float().mean(); total += hit.item()", "total", "mean"
    )
    check_transformed("ready", before, after, epoch="train_epoch()")
    before, after = script("total += measure(output, y)", "total")
    conversion = check_transformed(
        "ready", before, after, imports="from m import measure", epoch="train_epoch()"
    )
    assert "ACC302" in {f.code for f in conversion.remaining}
