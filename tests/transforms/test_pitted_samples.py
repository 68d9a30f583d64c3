"""Losses that pit each sample of a batch against the others: in the forward of a model, and of libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import codes, convert, frame

NET = """\
import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.heads, self.ce = nn.Linear(4, 4), nn.CrossEntropyLoss()

    def forward(self, x):
        n = len(x)
        scores = torch.mm(self.a(x), self.b(x).t())
        {line}
        return loss
"""
OWN = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def _loss_in_forward(line: str) -> str:
    return NET.format(line=line)


@pytest.mark.parametrize(
    ("line", "pits"),
    [
        ("loss = -torch.diag(F.log_softmax(scores, dim=1)).mean()", True),
        ("loss = -F.log_softmax(scores / 0.1, dim=1).diag().sum() / n", True),
        ("kept = torch.softmax(scores, 1); loss = -kept.diag().log().mean()", True),
        ("loss = F.cross_entropy(scores, torch.arange(n))", True),
        ("own = torch.arange(n, device=x.device).long(); loss = self.ce(scores, own)", True),
        ("own = scores.diag().view(n, 1); loss = (0.2 + scores - own).clamp(min=0).sum()", True),
        ("own = scores.diag(); loss = F.relu(scores - own.expand_as(scores) + 0.2).sum()", True),
        ("loss = F.relu(1 + scores - torch.diag(scores)[:, None]).mean()", True),
        (
            "scores = (scores / 0.1).exp(); own = scores[range(n), range(n)]\n"
            "        loss = -torch.log(own / (scores.sum(dim=1) - own)).mean()",
            True,
        ),
        (
            "y = self.b(x); scores = torch.einsum('ik,jk->ij', x, y).exp(); i = torch.arange(n)\n"
            "        loss = -torch.log(scores[torch.arange(n), torch.arange(n)] / scores.sum(1)).mean()",
            True,
        ),
        ("own = torch.diagonal(scores); loss = (torch.logsumexp(scores, dim=1) - own).mean()", True),
        # other places than the diagonal, the diagonal alone, rows of one sample
        ("own = scores[range(n), x.argmax(1)]; loss = -torch.log(own / scores.sum(dim=1)).mean()", False),
        ("loss = -torch.log(scores[range(n), range(n)]).mean()", False),
        ("one = self.heads(x); loss = -torch.log(one[range(n), range(n)] / one.sum(dim=1)).mean()", False),
        ("one = torch.einsum('ik,jk->i', x, x).exp(); loss = one.log().mean()", False),
        # what is off the diagonal, the diagonal alone
        ("loss = (scores - torch.diag(torch.diag(scores))).pow(2).mean()", False),
        ("loss = (0.2 + scores.diag()).clamp(min=0).mean() - scores.mean()", False),
        # squared lengths, attention within a sample, classes, positions
        ("loss = torch.diag(scores).mean()", False),
        ("loss = (F.softmax(scores, 1) @ self.heads(x)).mean()", False),
        ("loss = F.log_softmax(scores, 1).diagonal(0, 1, 2).mean()", False),
        ("loss = F.cross_entropy(scores, torch.arange(8))", False),
        ("loss = F.cross_entropy(scores, x.argmax(1))", False),
        ("loss = F.mse_loss(x.sum(1), torch.arange(n))", False),
        ("loss = torch.diag(F.softmax(self.heads(x), 1)).mean()", False),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_loss_in_the_forward_of_a_model(line: str, pits: bool, apart: bool, tmp_path: Path) -> None:
    own, path = _loss_in_forward(line), tmp_path / "train.py"
    if apart:
        (tmp_path / "nets.py").write_text(own)
    path.write_text(
        frame(imports="from nets import Net" if apart else own, build=OWN, loss="loss = model(x)\n")
    )
    found = convert_project(Source.read(path))[0]
    assert found.status == "converted", found.reason
    assert [f.code for f in found.remaining if f.code == "ACC408"] == ["ACC408"] * pits
    again = convert_project(Source.from_text(found.new_text, path))[0]
    assert again.new_text == found.new_text


LIBRARY = "from pytorch_metric_learning import losses, miners"


@pytest.mark.parametrize(
    ("criterion", "pits"),
    [
        ("losses.TripletMarginLoss(margin=0.1)", True),
        ("losses.NTXentLoss()", True),
        ("losses.ProxyAnchorLoss(2, 4)", False),
        ("losses.CrossBatchMemory(losses.NTXentLoss(), 4)", False),
        ("losses.SoftTripleLoss(2, 4)", False),
    ],
)
def test_pair_losses_of_a_library(criterion: str, pits: bool) -> None:
    found = convert(imports=LIBRARY, ready=f"criterion = {criterion}", loss="loss = criterion(model(x), y)")
    assert ("ACC408" in codes(found)) is pits


@pytest.mark.parametrize(("told", "pits"), [("", True), ("gather_distributed=True", False)])
def test_a_loss_that_gathers_by_itself(told: str, pits: bool) -> None:
    found = convert(
        imports="from lightly.loss import NTXentLoss",
        ready=f"criterion = NTXentLoss({told})",
        loss="loss = criterion(model(x), model(x))",
    )
    assert ("ACC408" in codes(found)) is pits


def test_a_criterion_of_another_module_around_one_of_a_library(tmp_path: Path) -> None:
    own = f"import torch\n{LIBRARY}\n\n\nclass Pairs(torch.nn.Module):\n    def __init__(self):\n"
    own += "        super().__init__()\n        self.miner = miners.TripletMarginMiner()\n"
    own += "        self.own = losses.TripletMarginLoss()\n\n    def forward(self, z, y):\n"
    own += "        return self.own(z, y, self.miner(z, y))\n"
    (tmp_path / "pairs.py").write_text(own)
    path = tmp_path / "train.py"
    path.write_text(
        frame(imports="import pairs", ready="criterion = pairs.Pairs()", loss="loss = criterion(model(x), y)")
    )
    (told,) = [f.message for f in convert_project(Source.read(path))[0].remaining if f.code == "ACC408"]
    assert "(pairs.py, line 12)" in told


def test_what_is_evaluated_alone_is_no_loss() -> None:
    lines = "for a, b in test_loader:\n    print(criterion(model(a), b).item())"
    found = convert(imports=LIBRARY, ready="criterion = losses.TripletMarginLoss()", epoch=lines)
    assert "ACC408" not in codes(found)


RANKED = """
def similar(a, b):
    return {similar}


class Ranking(nn.Module):
    def forward(self, a, b):
        scores = similar(a, b)
        own = scores.diag().view(-1, 1)
        return (0.2 + scores - own).clamp(min=0).sum()
"""


@pytest.mark.parametrize("similar", ["a.mm(b.t())", "torch.cat([of_one(a, row) for row in b], 1)"])
def test_one_comparison_is_named_once(similar: str) -> None:
    setup = (
        f"def of_one(a, row):\n    return (a * row).sum(1, keepdim=True)\n{RANKED.format(similar=similar)}"
    )
    ready, loss = "criterion = Ranking()", "loss = criterion(model(x), model(x + 1))"
    found = [f for f in convert(setup=setup, ready=ready, loss=loss).remaining if f.code == "ACC408"]
    assert len(found) == 1
