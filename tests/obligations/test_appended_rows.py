"""Arrays to whose end each round of a loop puts the rows that it has gathered."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from sklearn.metrics import roc_auc_score
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = nn.Linear(4, 2)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
plain = DataLoader(torch.load("data.pt"), batch_size=8)
model, loader = accelerator.prepare(model, loader)


def evaluate(batches):
    labels, scores = {begin}, {begin}
    for x, y in batches:
        out = model(x.to(accelerator.device))
        {gather}
        labels = {labels}
        scores = {scores}
    return roc_auc_score(labels, scores)


for epoch in range(3):
    accelerator.print(evaluate({batches}))
"""
GATHERED = "out, y = accelerator.gather_for_metrics((out, y))"
CAT = ("torch.cat([labels, y])", "torch.cat((scores, out), dim=0)", "torch.tensor([])")
APPEND = ("np.append(labels, y.cpu().numpy())", "np.append(scores, out.cpu().numpy())", "np.array([])")
ARRAYS = (
    "np.concatenate([labels, y.cpu().numpy()])",
    "np.concatenate((scores, out.cpu().numpy()), 0)",
    "np.zeros(0)",
)


def shown(way: tuple[str, str, str], gather: str = GATHERED, batches: str = "loader") -> list[Obligation]:
    labels, scores, begin = way
    text = FRAME.format(labels=labels, scores=scores, begin=begin, gather=gather, batches=batches)
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "content"]


@pytest.mark.parametrize("way", [CAT, APPEND, ARRAYS])
def test_the_rows_of_all_ranks_are_those_of_the_original(way: tuple[str, str, str]) -> None:
    assert shown(way) == []


@pytest.mark.parametrize("way", [CAT, APPEND, ARRAYS])
def test_rows_of_a_share_and_copies_of_rows_are_named(way: tuple[str, str, str]) -> None:
    assert shown(way, gather="pass")
    assert shown(way, gather="y = accelerator.gather_for_metrics(y)")
    assert shown(way, batches="plain")


TOTAL = """total, count, first = None, 0, True
for i, (x, y) in enumerate(loader):
    out = {out}
{body}
    first = False
accelerator.print(total.mean())
"""
PUT = "total = torch.cat([total, out])"
BEGUN = {
    "an expression": f"    total = out if total is None else {PUT[8:]}",
    "nothing yet": f"    if total is None:\n        total = out\n    else:\n        {PUT}",
    "something": f"    if total is not None:\n        {PUT}\n    else:\n        total = out",
    "the first round": f"    if i == 0:\n        total = out\n    else:\n        {PUT}",
    "a flag": f"    if first:\n        total = out\n    else:\n        {PUT}",
}


@pytest.mark.parametrize("kind", BEGUN)
def test_the_first_round_begins_what_the_others_go_on_with(kind: str) -> None:
    head = FRAME.partition("\n\ndef")[0]
    gathered = TOTAL.format(out="accelerator.gather_for_metrics(model(x))", body=BEGUN[kind])
    assert validate(f"{head}\n{gathered}", None, KNOWLEDGE).of(Status.NAMED) == []
    share = TOTAL.format(out="model(x)", body=BEGUN[kind])
    (one,) = validate(f"{head}\n{share}", None, KNOWLEDGE).of(Status.NAMED)
    assert "printed: of the main process's share" in one.message


def test_a_sum_that_the_first_round_begins() -> None:
    head = FRAME.partition("\n\ndef")[0]
    for body in ("total = l if total is None else total + l", "total = l if i % 9 == 5 else total + l"):
        text = (
            f"total = None\nfor i, (x, y) in enumerate(loader):\n    l = model(x).mean().item()\n    {body}\n"
        )
        shown = 'accelerator.print(accelerator.reduce(total / len(loader), "mean"))\n'
        named = validate(f"{head}\n{text}{shown}", None, KNOWLEDGE).of(Status.NAMED)
        assert bool(named) == ("%" in body)


def test_another_use_of_what_was_there_is_named() -> None:
    assert shown(("torch.cat([labels * 2, y])", CAT[1], CAT[2]))
    assert shown(("torch.cat([labels, y.float().std().view(1)])", CAT[1], CAT[2]))


LISTED = """
rows, figures = [], []
for x, y in loader:
    first = {first}
    out, y = accelerator.gather_for_metrics((model(x), y))
    rows.append({row})
    figures.append(out.mean())
accelerator.print({shown})
"""


def listed(shown: str, row: str = "out", first: str = "0") -> list[str]:
    text = FRAME.partition("def evaluate")[0] + LISTED.format(shown=shown, row=row, first=first)
    return [one.message for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize(
    "shown",
    ["len(torch.cat(rows))", "torch.cat(rows).size(0)", "len(np.concatenate(rows))", "torch.cat(rows).sum()"],
)
def test_rows_of_all_rounds_are_as_many_as_the_originals(shown: str) -> None:
    assert listed(shown) == []


@pytest.mark.parametrize("shown", ["len(rows)", "len(torch.stack(figures))"])
def test_rounds_are_fewer_than_the_originals(shown: str) -> None:
    (message,) = listed(shown)
    assert "counts the rounds of each process" in message


@pytest.mark.parametrize(("rows", "gathered"), [("model(x)[:4]", "out[:4]"), ("y[:4]", "y[:4]")])
def test_a_fixed_number_of_rows_of_each_round(rows: str, gathered: str) -> None:
    assert listed("torch.cat(rows).sum()", "accelerator.gather(first)", rows) == []
    (message,) = listed("torch.cat(rows).sum()", gathered)
    assert "not what it would be on a single process" in message
