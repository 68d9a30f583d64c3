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
