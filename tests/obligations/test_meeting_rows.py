"""What the engine says of losses in which the rows of a batch meet each other, or go by the largest of all: the wrong
ones and their right neighbours."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(nn.Linear(4, 4))
data = torch.randn(64, 4)
centres = torch.ones(5, 4)
loader = accelerator.prepare(DataLoader(TensorDataset(data, data), batch_size=6))
"""


def named(lines: str) -> list[str]:
    """What is named of a loop with these lines between what a model gives and its backward."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    text = f"{HEAD}for x, y in loader:\n    o = model(x)\n{body}    accelerator.backward(loss)\n"
    return [one.message for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


BESIDE = "puts each row of the batch beside all others"
ORDER = "puts the rows of the batch in another order"
LARGEST = "goes by the largest or smallest of all rows"
WRONG = {
    "pairs by unsqueeze": ("loss = (o.unsqueeze(0) - o.unsqueeze(1)).pow(2).sum(-1).mean()", BESIDE),
    "pairs by None": ("loss = (o[:, None] - o[None]).abs().mean()", BESIDE),
    "pairs by None and whole axes": ("loss = (o[:, None, :] * o[None, :, :]).sum(-1).mean()", BESIDE),
    "expanded pairs": (
        "n, d = o.shape\nloss = (o.unsqueeze(1).expand(n, n, d) - o.unsqueeze(0).expand(n, n, d)).abs().mean()",
        BESIDE,
    ),
    "similarities": ("loss = F.cosine_similarity(o.unsqueeze(1), o.unsqueeze(0), dim=-1).mean()", BESIDE),
    "similarities of two views": (
        "z = torch.cat([o, x], dim=0)\nloss = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2).mean()",
        BESIDE,
    ),
    "similarities by a layer": (
        "z = torch.concat((o, y))\nloss = nn.CosineSimilarity(dim=2)(z[:, None], z[None]).mean()",
        BESIDE,
    ),
    "products of two views": (
        "z = torch.hstack([o, y])\nz = torch.cat([z, z])\nloss = torch.einsum('nc,mc->nm', z, z).mean()",
        BESIDE,
    ),
    "copies of two views": (
        "z = torch.cat([o, y])\nn = len(z)\n"
        "loss = (z.unsqueeze(1).expand(n, n, -1) - z.unsqueeze(0).expand(n, n, -1)).abs().mean()",
        BESIDE,
    ),
    "views beside themselves": (
        "z = torch.vstack([o.flatten(1), y.flatten(1)])\nloss = (z[:, None] - z).abs().mean()",
        BESIDE,
    ),
    "a loss of pairs": ("loss = F.mse_loss(o.unsqueeze(1), y.unsqueeze(0))", BESIDE),
    "alike labels": (
        "k = y.argmax(1)\nalike = (k.unsqueeze(0) == k.unsqueeze(1)).float()\nloss = (o * alike).mean()",
        BESIDE,
    ),
    "a sum over one axis": ("loss = torch.einsum('id,jd->ij', o, o).mean()", BESIDE),
    "distances": ("loss = F.mse_loss(o, y) + F.pdist(o).mean()", "mixes rows of the batch"),
    "rows backwards": ("loss = F.mse_loss(o, o.flip(0))", ORDER),
    "rows backwards by a list": ("loss = F.mse_loss(o, torch.flip(o, [0]))", ORDER),
    "rows that are moved on": ("loss = F.mse_loss(o, torch.roll(o, shifts=1, dims=0))", ORDER),
    "from row to row": ("loss = (o[1:] - o[:-1]).abs().mean()", "`o[1:]` chooses among the rows"),
    "by the largest": ("h = (o - y).abs()\nloss = (h / h.max()).mean()", LARGEST),
    "up to a part of the largest": (
        "h = (o - y).abs()\nloss = torch.clamp(h, max=h.max().item() * 0.5).mean()",
        LARGEST,
    ),
    "a threshold by the largest": (
        "h = (o - y).abs()\ng = 0.2 * torch.max(h)\nloss = torch.where(h <= g, h, h**2).mean()",
        LARGEST,
    ),
    "pairs by view": ("n = len(o)\nloss = (o.view(n, 1, -1) - o.view(1, n, -1)).abs().mean()", BESIDE),
    "pairs of a vector": ("s = o.sum(1)\nloss = F.relu(s.view(-1, 1) - s.view(1, -1)).mean()", BESIDE),
    "copies of each and of all": (
        "n = len(o)\nloss = (o.repeat_interleave(n, 0) - o.repeat(n, 1)).abs().mean()",
        BESIDE,
    ),
    "pairs by axes from the end": (
        "z = o.view(len(o), -1)\nloss = (z.unsqueeze(-3) - z.unsqueeze(-2)).abs().mean()",
        BESIDE,
    ),
    "a column and a vector": ("z = o.flatten(1)[:, :1]\nloss = F.mse_loss(z, y.sum(1).view(-1))", BESIDE),
    "an axis from the end": (
        "z = o.flatten(1)\nloss = (F.softmax(z, -2) * y).mean()",
        "along the axis of the rows",
    ),
    "a whole array": (
        "loss = 1 - F.cosine_similarity(o.flatten(), y.flatten(), dim=0)",
        "works along the axis of the rows",
    ),
    "the largest of a vector": (
        "z = (o.flatten(1) - y).abs().mean(1)\nloss = torch.sort(z, descending=True)[0][:2].mean()",
        "works along the axis of the rows",
    ),
    "the second half": ("n = len(o) // 2\nloss = (o[:n] - o[n:]).abs().mean()", "chooses among the rows"),
    "a part of the rows": ("loss = o.narrow(0, 0, 2).mean()", "works along the axis of the rows"),
    "all pairs in loops": (
        "loss, n = 0, len(o)\nfor i in range(n):\n    for j in range(n):\n"
        "        loss = loss + (o[i] - o[j]).abs().mean()\nloss = loss / n**2",
        "chooses among the rows",
    ),
    "each row and the next": (
        "loss = 0\nfor i in range(len(o) - 1):\n    loss = loss + (o[i] - o[i + 1]).abs().mean()\nloss = loss / len(o)",
        "chooses among the rows",
    ),
    "sums by class": (
        "k = y.argmax(1)\nloss = torch.zeros(4, 4).index_add(0, k, o).pow(2).mean()",
        "mixes rows",
    ),
    "sums by class in place": (
        "k, c = y.argmax(1), torch.zeros(4)\nc.scatter_add_(0, k, o.sum(1))\nloss = c.pow(2).mean()",
        "of something of each row",
    ),
    "a grid of rows": (
        "a, b = torch.meshgrid(o[:, 0], y[:, 0], indexing='ij')\nloss = (a - b).abs().mean()",
        "mixes rows",
    ),
    "a figure chosen by the batch": (
        "total = o.sum() + y.sum()\nif total.item() == 0:\n    total = 2 * (o * y).sum()\n"
        "loss = 1 - (o * y).sum() / total",
        "is a ratio of figures",
    ),
    "a ratio of a product": (
        "loss = 1 - torch.dot(o.reshape(-1), y.reshape(-1)) / (o.sum() + y.sum())",
        "is a ratio of figures",
    ),
    "a product of vectors": ("loss = o.flatten() @ y.flatten()", "the loss is a sum of its rows"),
    "products of columns": ("loss = (o.t() @ y).sum()", "the loss is a sum of its rows"),
    "a sum by its axes": ("loss = torch.einsum('id,id->', o, y)", "the loss is a sum of its rows"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_rows_that_meet_are_named(kind: str) -> None:
    lines, words = WRONG[kind]
    messages = named(lines)
    assert [words in message for message in messages] == [True], messages


RIGHT = {
    "rows and centres": "loss = (o.unsqueeze(1) - centres.unsqueeze(0)).pow(2).sum(-1).min(1)[0].mean()",
    "rows and centres by their axes": "loss = torch.einsum('id,kd->ik', o, centres).mean()",
    "two views, one half each": "n = len(o)\nz = torch.tanh(torch.cat([o, y]))\nloss = F.mse_loss(z[:n], z[n:])",
    "two views by half of their number": (
        "z = torch.tanh(torch.cat([o, y]))\nn = len(z) // 2\nloss = F.mse_loss(z[:n], z[n:])"
    ),
    "rounds one after the other": (
        "z = torch.cat([o * k for k in range(3)])\nn = len(o)\nloss = F.mse_loss(z.view(3, n, -1)[0], y)"
    ),
    "row by row by its axes": "loss = torch.einsum('id,id->i', o, y).mean()",
    "an axis put in and taken out": "loss = F.mse_loss(model(x.unsqueeze(1)).squeeze(1), y)",
    "an axis put ahead and taken out": "loss = F.mse_loss(model(x.unsqueeze(0)).squeeze(0), y)",
    "a weight for each row": "w = y[:, 0]\nloss = (o * w.unsqueeze(1)).mean() + (o * w[:, None]).mean()",
    "two columns beside each other": "loss = (o.unsqueeze(2) - y.unsqueeze(1)).abs().mean()",
    "another axis backwards": "loss = F.mse_loss(o, o.flip(1)) + (o - torch.flip(o, [-1])).abs().mean()",
    "another axis moved on": "loss = F.mse_loss(o, torch.roll(o, shifts=1, dims=1))",
    "from column to column": "loss = (o[:, 1:] - o[:, :-1]).abs().mean()",
    "two halves": "z, n = model(torch.cat([x, y])), len(x)\nloss = F.mse_loss(z[:n], z[n:])",
    "by the largest of each row": "h = (o - y).abs()\nloss = (h / h.max(1, keepdim=True)[0]).mean()",
    "as wide as the longest": (
        "n = y.sum(1)\nloss = (o * (torch.arange(n.max())[None] < n[:, None])).mean()"
    ),
    "a product of vectors": "loss = torch.dot(o.flatten(), y.flatten()) / o.numel()",
    "products of columns": "loss = (o.t() @ y).sum() / len(o)",
    "all axes but the first": "z = o.view(len(o), 2, 2)\nloss = (z.sum(dim=-2) * z.sum(dim=-1)).mean()",
    "a class of each row": "h = torch.zeros_like(o).scatter(-1, y.argmax(1)[:, None], 1.0)\nloss = (o - h).mean()",
    "two arrays in one": "loss = torch.stack([o, y], 0).mean(0).pow(2).mean()",
    "attention": "q = o.view(len(o), 2, 2)\nloss = ((q @ q.transpose(-2, -1)).softmax(-1) @ q).abs().mean()",
    "dots for axes": "loss = torch.einsum('...d,...d->...', o, y).pow(2).mean()",
    "rows and columns in loops": (
        "loss = 0\nfor i in range(o.size(0)):\n    for j in range(o.size(1)):\n"
        "        loss = loss + (o[i][j] - y[i][j]).abs()\nloss = loss / len(o)"
    ),
    "drawn partners": "loss = F.mse_loss(o, y[torch.randperm(len(y))])",
}


@pytest.mark.parametrize("kind", RIGHT)
def test_rows_that_stay_apart_are_not_named(kind: str) -> None:
    assert named(RIGHT[kind]) == []


SLOTS = """\
out = {made}
for i in range(4):
    out[:, i] = {figure}
loss = nn.SoftMarginLoss()(out, torch.ones(6, 4))
"""


@pytest.mark.parametrize(
    "made", ["torch.zeros(x.size(0), 4)", "torch.zeros((x.shape[0], 4))", "torch.zeros_like(x)"]
)
@pytest.mark.parametrize("figure", ["(o[:, i] * x[:, 0]).sum() / o.nelement()", "o[:, i].mean()"])
def test_figures_of_a_batch_in_the_place_of_rows(made: str, figure: str) -> None:
    assert "of something of each row" in "".join(named(SLOTS.format(made=made, figure=figure)))
    assert named(SLOTS.format(made=made, figure="o[:, i] * x[:, 0]")) == []


@pytest.mark.parametrize("word", ["dim", "axis"])
def test_an_axis_by_any_of_its_two_names(word: str) -> None:
    lines = f"each = F.mse_loss(o, y, reduction='none').sum({word}=1)\nloss = (each * x[:, 0]).mean()"
    assert named(lines) == []
    assert named(lines.replace("=1", "=0"))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("weight * F.mse_loss(o, y)", ["goes with a count of the rounds"]),
        (
            "weight * F.mse_loss(o, y, reduction='sum')",
            ["is a sum of its rows", "goes with a count of the rounds"],
        ),
        (
            "weight * F.mse_loss(o, y, reduction='sum') + F.mse_loss(o, y)",
            ["is neither the mean nor the sum", "goes with a count of the rounds"],
        ),
    ],
)
def test_each_of_the_causes_at_a_loss_is_named(loss: str, words: list[str]) -> None:
    text = f"{HEAD}weight = 0\nfor x, y in loader:\n    weight += 1\n    o = model(x)\n    loss = {loss}\n"
    found = validate(f"{text}    accelerator.backward(loss)\n", None, KNOWLEDGE).of(Status.NAMED)
    assert len(found) == len(words)
    assert all(any(word in one.message for one in found) for word in words)


@pytest.mark.parametrize(
    ("made", "by"),
    [
        ("losses.NTXentLoss(0.1)", "from pytorch_metric_learning import losses"),
        ("NTXentLoss()", "from lightly.loss import NTXentLoss"),
    ],
)
def test_losses_of_libraries_that_compare_rows(made: str, by: str) -> None:
    (message,) = named(f"{by}\nloss = {made}(torch.cat([o, y]), torch.arange(2 * len(x)))")
    assert "neither the mean nor the sum" in message
