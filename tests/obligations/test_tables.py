"""Tables that are written in part, a row or a column at a time: what is saved of them shows what was written."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import pandas as pd
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
class Log:
    table = pd.DataFrame(columns=["epoch", "loss"])
log, table = Log(), pd.DataFrame(columns=["epoch", "loss"])
for epoch in range(4):
    total = 0.0
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        total += loss.item()
    figure = {figure} / len(loader)
    {written}
    if accelerator.is_main_process:
        {shown}.to_csv("log.csv")
"""
OF_ALL = 'accelerator.reduce(torch.tensor(total), reduction="mean").item()'
WAYS = {
    "a row": ("table.loc[epoch] = [epoch, figure]", "table"),
    "a row at the end": ("table.loc[len(table)] = [epoch, figure]", "table"),
    "a cell": ("table.at[epoch, 'loss'] = figure", "table"),
    "a column": ("table['loss'] = [figure]", "table"),
    "a table of an object": ("log.table.loc[epoch, 'loss'] = figure", "log.table"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_figure_that_is_written_to_a_table(way: str) -> None:
    written, shown = WAYS[way]
    for figure, expected in (("total", [Status.NAMED]), (OF_ALL, [Status.PROVED])):
        text = TEXT.format(figure=figure, written=written, shown=shown)
        found = validate(text, None, KNOWLEDGE).obligations
        assert [one.status for one in found if one.demand == "content"] == expected


TRACKER = """\
import pandas as pd
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
class Tracker:
    def __init__(self, *keys):
        self.data = {made}
    def update(self, key, value):
        {total} += value
        {count} += 1
    def result(self):
        return {result}
tracker = Tracker("loss")
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    accelerator.backward(loss)
    tracker.update("loss", {value})
accelerator.print(tracker.result())
"""
FRAME = 'pd.DataFrame(0.0, index=keys, columns=["total", "counts"])'
TRACKERS = {
    "attributes": (FRAME, "self.data.total[key]", "dict(self.data.total / self.data.counts)"),
    "columns": (FRAME, 'self.data["total"][key]', '(self.data["total"] / self.data["counts"]).to_dict()'),
    "cells": (
        FRAME,
        'self.data.loc[key, "total"]',
        'self.data.loc["loss", "total"] / self.data.loc["loss", "counts"]',
    ),
    "cells of a column": (FRAME, "self.data.total.at[key]", "self.data.total / self.data.counts"),
    "dictionaries": (
        '{one: dict.fromkeys(keys, 0.0) for one in ("total", "counts")}',
        'self.data["total"][key]',
        'dict(self.data["total"])["loss"] / self.data["counts"]["loss"]',
    ),
    "pairs": ("[[0.0] * 2, [0.0] * 2]", "self.data[0][len(key)]", 'dict(zip("ab", self.data[0]))'),
}


@pytest.mark.parametrize("way", TRACKERS)
def test_totals_in_containers_of_containers(way: str) -> None:
    made, total, result = TRACKERS[way]
    for value, expected in (("loss.item()", Status.NAMED), ("1.0", None)):
        count = total.replace("total", "counts").replace("[0][", "[1][")
        text = TRACKER.format(made=made, total=total, count=count, result=result, value=value)
        found = validate(text, None, KNOWLEDGE).obligations
        (content,) = [one.status for one in found if one.demand == "content"]
        assert content is expected or expected is None
