"""What is put together of what every process has alike, and figures that stand beside a time in one text."""

from __future__ import annotations

import textwrap

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = nn.Linear(4, 2)
loaders = []
for part in ("train", "val", "test"):
    loaders.append(DataLoader(torch.load(part), batch_size=8))
train, val, test = loaders
model, train = accelerator.prepare(model, train)
begin = time.time()
total, rows = 0, []
for x, y in {loader}:
    right = model(x.to(accelerator.device)).argmax(1) == y
{body}
"""
ALL = "np.square(np.concatenate(rows, axis=0)).mean()"


def shown(body: str, after: str, loader: str) -> list[Obligation]:
    text = f"{FRAME.format(loader=loader, body=textwrap.indent(body, ' ' * 4))}{after}\n"
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    return [one for one in checked.of(Status.NAMED) if one.demand == "content"]


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("total += accelerator.reduce(right.sum(), reduction='sum').item()", "accelerator.print(total)"),
        ("total += accelerator.gather(right).sum().item()", "accelerator.print(total)"),
        ("rows.append(accelerator.gather_for_metrics(right).cpu().numpy())", f"accelerator.print({ALL})"),
    ],
)
def test_copies_of_an_unprepared_loaders_rows_are_named_by_the_gather(body: str, after: str) -> None:
    for loader in ("val", "test"):
        (one,) = shown(body, after, loader)
        assert f"every process goes through all of `{loader}`, which is not prepared" in one.message


@pytest.mark.parametrize(
    ("body", "after", "loader"),
    [
        (
            "total += accelerator.reduce(right.sum(), reduction='sum').item()",
            "accelerator.print(total)",
            "train",
        ),
        ("total += accelerator.gather(right).sum().item()", "accelerator.print(total)", "train"),
        (
            "total += accelerator.gather(right.float().mean()).mean().item()",
            "accelerator.print(total)",
            "val",
        ),
        ("total += right.sum().item()", "accelerator.print(total)", "val"),
    ],
)
def test_what_is_put_together_once(body: str, after: str, loader: str) -> None:
    assert shown(body, after, loader) == []


def test_a_time_in_the_text_does_not_hide_the_figure_beside_it() -> None:
    body = "rows.append(accelerator.gather_for_metrics(right).cpu().numpy())"
    (one,) = shown(body, f"accelerator.print(f'{{{ALL}:.4f}} in {{time.time() - begin}} s')", "val")
    assert "which is not prepared" in one.message
    (one,) = shown("total += 2", "accelerator.print(f'{total} halves in {time.time() - begin} s')", "train")
    assert "counts the rounds of each process" in one.message
    assert shown(body, "accelerator.print(f'{len(val)} in {time.time() - begin} s')", "val") == []


def test_a_text_joined_of_a_loops_texts_says_where_they_come_from() -> None:
    after = "open('a.txt' if accelerator.is_main_process else '/dev/null', 'w').write(','.join(rows))"
    (one,) = shown("rows.append(str(right.sum()))", after, "train")
    assert "right.sum()" in one.message
