"""Samples that a loss picks by how large theirs are, among those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source

HELPER = """\
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


def pick(out, y, rate, images):
    k = int(rate * len(y))
    {line}
"""
SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{taken}

model = nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 8), batch_size=8)
for x, y in loader:
    loss = pick(model(x), y, 0.5, 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LEFT = [
    # Not by their losses, not apart from each other, or those of one sample among themselves.
    "return F.cross_entropy(out.topk(2)[0], y % 2)",
    "return F.cross_entropy(out, y)",
    "each = F.cross_entropy(out, y, reduction='none'); return each.mean()",
    "each = F.mse_loss(out, out * 2, reduction='none'); return each.sort(1)[0][:, :2].mean()",
    "each = F.mse_loss(out, out * 2, reduction='none'); return each.topk(2)[0].mean()",
    "each = F.mse_loss(out, out * 2, reduction='none'); return each.sum(0).view(-1).topk(2)[0].mean()",
    "each = F.mse_loss(out, out * 2, reduction='none'); return torch.topk(each.view(images, -1), 2)[0].mean()",
]
PICKED = [
    "each = F.mse_loss(out, out * 2, reduction='none').view(-1); return each.topk(k)[0].mean()",
    "each = F.mse_loss(out, out * 2, reduction='none'); return each.flatten().topk(k)[0].mean()",
    "each = F.cross_entropy(out, y, reduction='none'); return torch.topk(each, k, largest=False)[0].mean()",
    "each = nn.CrossEntropyLoss(reduction='none')(out, y); return each.topk(k)[0].mean()",
    "each = F.cross_entropy(out, y, reduce=False); return each[np.argsort(each.data.cpu())[:k]].mean()",
    "each = (F.cross_entropy(out, y, reduction='none') * 0.9).cpu(); return each.sort()[0][:k].mean()",
    "each = F.cross_entropy(out, y, reduction='none').view(-1); return torch.sort(each, descending=True)[0][k]",
]


def converted(folder: Path, line: str, *, apart: bool) -> Conversion:
    helper = HELPER.format(line=line)
    (folder / "helpers.py").write_text(helper)
    taken = "from helpers import pick\n" if apart else helper
    (folder / "train.py").write_text(SCRIPT.format(taken=taken))
    conversion = convert_project(Source.read(folder / "train.py"))[0]
    assert conversion.status == "converted", conversion.reason
    return conversion


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("line", LEFT)
def test_what_is_ranked_within_a_sample_is_each_process_s_own(tmp_path: Path, line: str, apart: bool) -> None:
    assert "ACC408" not in {f.code for f in converted(tmp_path, line, apart=apart).remaining}


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("line", PICKED)
def test_samples_picked_by_their_losses_are_those_of_a_process(
    tmp_path: Path, line: str, apart: bool
) -> None:
    assert "ACC408" in {f.code for f in converted(tmp_path, line, apart=apart).remaining}
