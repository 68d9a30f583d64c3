"""Radii, centres and quantiles that are set from a process's own part of the batch, and go into the next loss."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import convert, frame

BUILD = """
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = torch.zeros(())
"""
CARRIED = "the loss goes with what each process's round before left"
LOSS = "out = model(x)\nloss = F.cross_entropy(out, y) + kept * out.pow(2).mean()"


def _said(conversion: Conversion) -> list[str]:
    prove([conversion], conversion)
    return [f.message for f in conversion.remaining if f.message.startswith(CARRIED)]


@pytest.mark.parametrize(
    "update",
    [
        "kept = torch.quantile(out.detach(), 0.9)",
        "kept.data = out.data.mean()",
        "kept = 0.9 * kept + 0.1 * out.detach().mean()",
        "kept.mul_(0.9).add_(0.1 * out.detach().std())",
        "kept.data.copy_(out.max().detach())",
        "with torch.no_grad():\n    kept = out.mean()",
        "middle = out.detach().median()\nkept = 0.9 * kept + 0.1 * middle",
        "if epoch > 1:\n    kept.data = torch.tensor(radius(out, 0.9))",
    ],
)
def test_a_statistic_that_is_kept_is_named_where_it_weighs(update: str) -> None:
    helper = "def radius(values, share):\n    return np.quantile(values.detach().cpu().numpy(), share)"
    conversion = convert(
        imports="import numpy as np",
        setup=helper,
        build=BUILD,
        loss=LOSS,
        update=f"optimizer.step()\n{update}",
        end="print(kept)",
    )
    (message,) = _said(conversion)
    assert "kept" in message


@pytest.mark.parametrize(
    "update",
    [
        "kept = 0.9 * kept",
        "kept = accelerator.gather(out.detach()).mean()",
        "middle = accelerator.reduce(out.detach().mean())\nkept = 0.9 * kept + 0.1 * middle",
        "other = out.detach().mean()",
    ],
)
def test_what_is_no_statistic_or_everybodys(update: str) -> None:
    build = "from accelify.runtime import Accelerator\naccelerator = Accelerator()\n" + BUILD
    text = frame(
        build=build if "accelerator" in update else BUILD, loss=LOSS, update=f"optimizer.step()\n{update}"
    )
    assert not _said(convert_source(Source.from_text(text, Path("train.py"))))


def test_a_statistic_that_goes_into_no_loss() -> None:
    update = "optimizer.step()\nkept = 0.9 * kept + 0.1 * model(x).detach().mean()"
    assert not _said(convert(build=BUILD, update=update))


TRAINER = """
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from radius import get_radius


    class Trainer:
        def __init__(self, device):
            self.device, self.R = device, torch.tensor(0.0, device=device)

        def train(self, loader, net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for (x,) in loader:
                x = x.to(self.device)
                optimizer.zero_grad()
                dist = torch.sum((net(x) - 0.5) ** 2, dim=1)
                loss = self.R ** 2 + torch.mean(torch.clamp(dist - self.R ** 2, min=0))
                loss.backward()
                optimizer.step()
                self.R.data = torch.tensor(get_radius(dist, 0.1), device=self.device)

        def test(self, loader, net):
            triples = []
            with torch.no_grad():
                for (x,) in loader:
                    dist = torch.sum((net(x.to(self.device)) - 0.5) ** 2, dim=1)
                    scores = dist - self.R ** 2
                    triples += list(zip(dist.cpu().numpy().tolist(), scores.cpu().numpy().tolist()))
            _, scores = zip(*triples)
            print(len(scores), np.mean(scores))


    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(2, 1).to(device)
    data = TensorDataset(torch.randn(24, 2))
    trainer = Trainer(device)
    trainer.train(DataLoader(data, batch_size=4, shuffle=True), net)
    trainer.test(DataLoader(data, batch_size=4), net)
"""
RADIUS = """
    import numpy as np


    def get_radius(dist, share):
        return np.quantile(np.sqrt(dist.clone().data.cpu().numpy()), 1 - share)
"""


def test_an_attribute_and_a_helper_of_another_module(tmp_path: Path) -> None:
    (tmp_path / "radius.py").write_text(textwrap.dedent(RADIUS))
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINER))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    (message,) = _said(conversion)
    assert "`self.R ** 2`" in message


SUMS = "total, count = 0.0, 0\n"
CARRY = "optimizer.step()\nkept = 0.9 * kept + 0.1 * out.detach().mean()\n"
ADDED = CARRY + "total += loss.item() * len(x)\ncount += len(x)\n"
WORST = CARRY + "worst = out.detach().std() * worst"


@pytest.mark.parametrize(
    ("ready", "update", "shown", "codes"),
    [
        (SUMS, ADDED, "print(total / count)", ["ACC706"]),
        # What is wrong with a figure by itself is named beside the loss.
        ("worst = 1.0", WORST, "print(worst)", ["ACC701", "ACC706"]),
    ],
)
def test_a_figure_that_is_put_together_is_not_named_for_its_loss(
    ready: str, update: str, shown: str, codes: list[str]
) -> None:
    conversion = convert(build=BUILD, ready=ready, loss=LOSS, update=update, end=shown)
    prove([conversion], conversion)
    assert sorted({f.code for f in conversion.left if f.code in ("ACC701", "ACC706")}) == codes
