"""Totals that are divided by numbers which stay what they were on one process."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

LOOP = """
count = len(os.listdir("pictures"))
lines = [line for line in open("names.txt").readlines()]
found, measures = [], []
for line in lines:
    found.append(line)
batch_size = 8
{before}
total = n = 0
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += {added}
    measures.append(loss.item())
    n += 1
{behind}
"""


def reduction(behind: str, added: str = "loss.item()", before: str = "") -> str:
    text = convert(end=LOOP.format(before=before, added=added, behind=behind)).new_text
    return text.partition("total = accelerator.reduce(total, reduction=")[2].partition(")")[0].strip('"')


@pytest.mark.parametrize(
    "divisor",
    [
        "count",
        "len(lines)",
        "len(found)",
        "len(found[:100])",
        "int(count / batch_size)",
        "(count // batch_size)",
        "(len(os.listdir('pictures')) // loader.batch_size + 1)",
        "max(1, len(lines))",
        "(count if count > 100 else 100)",
        "loader.dataset.__len__()",
        "60000",
        "2",
    ],
)
def test_what_is_divided_by_a_number_of_all_samples_is_the_sum_of_all_processes(divisor: str) -> None:
    assert reduction(f"print(total / {divisor})") == "sum"


@pytest.mark.parametrize(
    ("behind", "added"),
    [
        ("print(total / len(loader))", "loss.item()"),
        ("print(total / n)", "loss.item()"),
        ("print(total / len(measures))", "loss.item()"),
        ("print(total / 2 / len(loader))", "loss.item()"),
        ("mean = total / 2\nprint(mean / len(loader))", "loss.item()"),
        ("print(total / (len(loader) * batch_size))", "loss.item()"),
        ("print(total / len(loader))", "loss.item() / 4"),
        ("history = [total / 2]\nprint(history[0] / len(loader))", "loss.item()"),
    ],
)
def test_what_is_divided_by_a_number_of_batches_of_one_process_is_their_mean(behind: str, added: str) -> None:
    assert reduction(behind, added) == "mean"


def test_parts_that_are_divided_before_they_are_added() -> None:
    assert reduction("history = total", "loss.item() / count") == "sum"
    assert reduction("history = total", "loss.item() / n") == "mean"


def test_a_loop_of_a_set_number_of_rounds_has_as_many_on_every_process() -> None:
    text = LOOP.replace("    n += 1", "    n += 1\n    if n == 100:\n        break")
    text = text.format(before="", added="loss.item()", behind="print(total / 100)")
    assert 'total = accelerator.reduce(total, reduction="mean")' in convert(end=text).new_text


@pytest.mark.parametrize("stored", ["self.count = len(lines)", "self.count = len(loader)"])
def test_numbers_that_an_object_keeps(stored: str) -> None:
    keeper = f"class Keeper:\n    def __init__(self):\n        {stored}\nkeeper = Keeper()"
    kind = "mean" if "loader" in stored else "sum"
    assert reduction("print(total / keeper.count)", before=keeper) == kind


def test_lists_and_evaluations_that_are_divided_by_such_a_number() -> None:
    behind = """
print(sum(measures) / count)
miss = 0
for x, y in test_loader:
    miss += F.cross_entropy(model(x), y).item()
print(miss / count)
"""
    conversion = convert(end=LOOP.format(before="", added="loss.item()", behind=behind))
    assert 'measures = accelerator.reduce(measures, reduction="sum")' in conversion.new_text
    assert "gather_for_metrics" not in conversion.new_text
    assert "ACC303" in codes(conversion)
