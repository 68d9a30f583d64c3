"""What the engine says of layers and functions that go along the axis of a batch's rows."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, Validation, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
data = torch.load("d")
loader = accelerator.prepare(DataLoader(data, batch_size=6))
lstm = accelerator.prepare(nn.LSTM(8, 8))
"""
ATTENTION = "net = accelerator.prepare(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2{}), 1))\n"
PADDED = (
    "def put(rows): return pad_sequence(rows{}), torch.tensor([row[0] for row in rows])\n"
    "loader = accelerator.prepare(DataLoader(data, batch_size=6, collate_fn=put))\n"
)


def found(loss: str, before: str = "") -> Validation:
    text = f"{HEAD}{before}for x, y in loader:\n    accelerator.backward(F.mse_loss({loss}, y))\n"
    return validate(text, None, KNOWLEDGE)


NAMED = {
    "attention over the batch": ("net(x)", ATTENTION.format("")),
    "attention over a batch in another place": (
        "net(x.transpose(0, 1))",
        ATTENTION.format(", batch_first=True"),
    ),
    "attention of three": ("att(x, x, x)[0]", "att = accelerator.prepare(nn.MultiheadAttention(8, 2))\n"),
    "a recurrent layer": ("lstm(x)[0]", ""),
    "rows as steps of a sequence": ("lstm(x.view(len(x), 1, -1))[0]", ""),
    "rows as steps, with an axis put in": ("lstm(x.unsqueeze(1))[0]", ""),
    "a layer of a model": (
        "net(x)",
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.embed, self.steps = nn.Embedding(9, 8), nn.GRU(8, 8)\n"
        "    def forward(self, x):\n"
        "        b, t = x.shape\n"
        "        return self.steps(self.embed(x).view(b, t, 8))[0][:, -1]\n"
        "net = accelerator.prepare(Net())\n",
    ),
    "rows that a function puts together": ("lstm(x)[0]", PADDED.format(", batch_first=True")),
    "softmax over the batch": ("torch.softmax(x, dim=0)", ""),
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_layer_that_goes_along_the_rows_is_named(kind: str) -> None:
    loss, before = NAMED[kind]
    (one,) = found(loss, before).of(Status.NAMED)
    assert one.demand == "loss"
    assert "along the axis of the rows" in one.message


QUIET = {
    "attention, batch first": ("net(x)", ATTENTION.format(", batch_first=True")),
    "attention, turned": ("net(x.permute(1, 0, 2)).transpose(0, 1)", ATTENTION.format("")),
    "a flag that is not known": ("net(x)", ATTENTION.format(", batch_first=bool(data)")),
    "rows along an axis that is not known": ("lstm(x.view(5, -1, 8))[0]", ""),
    "an axis put ahead": ("lstm(x.unsqueeze(0))[0]", ""),
    "a list of steps": ("lstm(torch.stack([x[:, 0], x[:, 1]]))[0]", ""),
    "packed": ("lstm(pack_padded_sequence(x, y.cpu(), batch_first=True))[1][0]", ""),
    "rows along the second axis of a batch": ("lstm(x)[0]", PADDED.format("")),
    "batches of one row": ("lstm(x)[0]", "loader = accelerator.prepare(DataLoader(data, batch_size=1))\n"),
    "softmax over another axis": ("x.softmax(1) + F.softmax(x)", ""),
}


@pytest.mark.parametrize("kind", QUIET)
def test_a_layer_that_may_go_along_another_axis_is_not_named(kind: str) -> None:
    loss, before = QUIET[kind]
    assert found(loss, before).of(Status.NAMED) == []


def test_where_the_axis_is_not_known_the_proof_assumes_it() -> None:
    assumed = [one.text for one in found("lstm(x)[0]", PADDED.format("")).assumptions]
    assert assumed == ["torch.nn.LSTM gets batches along the axis that it takes for theirs"]


def test_what_is_taken_within_gathered_rows_is_the_original_s() -> None:
    text = (
        "total = 0\n"
        "for x, y in loader:\n"
        "    o, l = accelerator.gather_for_metrics((x, y))\n"
        "    total += (o.index_select({}, torch.tensor([0], device=o.device)) == l).sum().item()\n"
        "accelerator.print(total)\n"
    )
    assert validate(HEAD + text.format(1), None, KNOWLEDGE).of(Status.NAMED) == []
    assert len(validate(HEAD + text.format(0), None, KNOWLEDGE).of(Status.NAMED)) == 1


def test_a_squeeze_that_may_take_the_rows_axis_assumes_that_there_are_several() -> None:
    assert [one.text for one in found("x.squeeze()").assumptions] == [
        "`x.squeeze()` gets more than one row on every process"
    ]
    assert found("x.squeeze(1)").assumptions == []


TURNED = "rays = x.permute(1, 0, 2)[:2]"
PARTS = "first, second = rays"


@pytest.mark.parametrize(
    ("made", "shown", "named"),
    [
        (f"{TURNED}; {PARTS}", "first / torch.norm(first, dim=-1, keepdim=True)", False),
        (f"{TURNED}; {PARTS}", "first / torch.norm(first, dim=0, keepdim=True)", True),
        (TURNED, "rays[..., 0].mean(0)", False),
        (f"{TURNED}; last = rays[..., 0]", "last / torch.norm(last, dim=1, keepdim=True)", True),
        ("out, (h, c) = lstm(x.permute(1, 0, 2))", "out / torch.norm(out, dim=2, keepdim=True)", False),
        ("out, (h, c) = lstm(x.permute(1, 0, 2))", "out / torch.norm(out, dim=1, keepdim=True)", True),
    ],
)
def test_parts_of_a_batch_whose_rows_lie_along_another_axis(made: str, shown: str, named: bool) -> None:
    loop = f"for x, y in loader:\n    {made}\n    accelerator.backward(F.mse_loss({shown}, y))\n"
    assert bool(validate(HEAD + loop, None, KNOWLEDGE).of(Status.NAMED)) == named


@pytest.mark.parametrize(
    ("pooled", "named"),
    [
        ("nn.AdaptiveAvgPool2d(1)(x.view(-1, 8)).sigmoid()", True),
        ("F.adaptive_max_pool2d(x.reshape(-1, 8), 1)", True),
        ("F.avg_pool1d(x.view(-1, 8).t(), 2).sigmoid()", True),
        ("F.avg_pool1d(x.view(-1, 8), 2)", False),
        ("nn.AdaptiveAvgPool2d(1)(x.view(-1, 1, 2, 4)).sigmoid()", False),
        ("nn.AdaptiveAvgPool2d(1)(x.view(-1, 2, 4)).sigmoid()", False),
    ],
)
def test_a_pool_over_as_many_axes_as_there_are_takes_the_rows(pooled: str, named: bool) -> None:
    said = [one.message for one in found(pooled).of(Status.NAMED)]
    assert any("pools over the rows" in one for one in said) is named
    assert bool(said) is named
