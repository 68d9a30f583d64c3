"""Totals to which a round adds where its own batch says so, or where it does not fail: so it is in the original."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = nn.Linear(4, 2)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model, loader = accelerator.prepare(model, loader)
total = n = 0
for x, y in loader:
    out = model(x)
{body}
{after}
"""
BY_BATCH = "    if out.sum() > 0:\n        total += out.sum().item()\n        n += 1"
BY_EITHER = "    if out.sum() > 0:\n        total += out.sum().item()\n    else:\n        total += 1"
TRIED = """\
    try:
        total += nn.functional.mse_loss(out, y, reduction="sum").item()
    except RuntimeError:
        torch.cuda.empty_cache()
        continue"""
SUM = 'accelerator.reduce(torch.tensor({}), reduction="sum")'
BOTH = f"total, n = {SUM.format('[total, n]')}.tolist()\naccelerator.print(total / n)"
TOTAL = f"accelerator.print({SUM.format('total')}.item() / len(loader.dataset))"


def shown(body: str, after: str) -> list[Obligation]:
    checked = validate(FRAME.format(body=body, after=after), None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "content"]


@pytest.mark.parametrize(
    ("body", "after"), [(BY_BATCH, TOTAL), (BY_BATCH, BOTH), (BY_EITHER, TOTAL), (TRIED, TOTAL)]
)
def test_put_together_it_is_the_originals(body: str, after: str) -> None:
    assert shown(body, after) == []


@pytest.mark.parametrize("body", [BY_BATCH, BY_EITHER, TRIED])
def test_it_is_of_a_share_where_it_is_not_put_together(body: str) -> None:
    (one,) = shown(body, "accelerator.print(total)")
    assert "of the main process's share; take its sum or mean over the ranks (reduce)" in one.message


@pytest.mark.parametrize(
    "body",
    [
        "    if out.sum() > total:\n        total += 1",
        "    if out.sum() > 0:\n        total = 1",
        "    if out.sum() > 0:\n        total += accelerator.process_index",
    ],
)
def test_what_goes_with_more_than_the_round(body: str) -> None:
    assert shown(body, TOTAL)


def test_a_list_of_a_loaders_batches_has_as_many_as_a_process_has() -> None:
    mean = 'accelerator.reduce(torch.tensor(total), reduction="mean").item()'
    for count in ("len(list(loader))", "len(loader)"):
        assert shown("    total += out.sum().item()", f"accelerator.print({mean} / {count})") == []
    assert shown("    total += out.sum().item()", f"accelerator.print({mean})")


@pytest.mark.parametrize(
    "more",
    ["sums[k] += {}", "sums[k] = sums.get(k, 0) + {}", "sums[k] = {} + sums[k]", "sums[k] = sums[k] + {}"],
)
def test_totals_under_keys_that_are_not_known_add_up_over_the_rounds(more: str) -> None:
    added = more.format("log.get(k, 0)")
    body = "    log = dict(loss=nn.functional.mse_loss(out, y).item())\n    for k in keys:\n        " + added
    begin = (
        "import json, collections\nsums, keys = collections.defaultdict(int), json.load(open('keys.json'))\n"
    )
    after = "accelerator.print({k: v / len(loader) for k, v in sums.items()})"
    checked = validate(begin + FRAME.format(body=body, after=after), None, KNOWLEDGE)
    (one,) = [one for one in checked.of(Status.NAMED) if one.demand == "content"]
    assert "take its sum or mean over the ranks" in one.message
