"""Constructors of the host's types, `torch.LongTensor(labels)`, which take a tensor only where it lies on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.support import check_transformed, codes, convert
from tests.transforms.test_host_helpers import said, together

MOVED = "x, y = x.cuda(), y.cuda()"


@pytest.mark.parametrize(
    "batch",
    [
        "a = torch.FloatTensor(x.size())",
        "a = torch.FloatTensor(*x.shape)",
        "a = torch.FloatTensor(x.shape[0], len(y))",
        "a = torch.LongTensor(y.tolist())",
        "a = torch.LongTensor([y[0], y[1]])",
        "a = torch.LongTensor(y.cpu())",
        "a = torch.Tensor(x)",
        "a = torch.LongTensor(order)",
    ],
)
def test_what_is_no_tensor_of_the_batch_stays(batch: str) -> None:
    conversion = convert(setup="order = torch.arange(8)", batch=f"{batch}\n{MOVED}")
    assert "ACC114" not in codes(conversion)
    assert batch in conversion.new_text


def test_what_a_function_of_the_script_collates_may_be_a_list() -> None:
    setup = "def collate(rows):\n    return torch.stack([r[0] for r in rows]), [int(r[1]) for r in rows]"
    ready = "loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)"
    conversion = convert(setup=setup, ready=ready, batch=f"y = torch.LongTensor(y)\n{MOVED}")
    assert "ACC114" not in codes(conversion)
    assert "y = torch.LongTensor(y)\n" in conversion.new_text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "y = torch.LongTensor(y)\nx, y = x.cuda(), y.cuda()",
            "y = torch.LongTensor(y.cpu())\ny = y.to(accelerator.device)",
        ),
        (
            "y = torch.LongTensor(y).cuda()\nx = torch.FloatTensor(x[:, :4]).cuda()",
            "y = torch.LongTensor(y.cpu()).to(accelerator.device)\n"
            "x = torch.FloatTensor(x[:, :4].cpu()).to(accelerator.device)",
        ),
    ],
)
def test_a_tensor_of_the_batch_is_fetched(before: str, after: str) -> None:
    assert "ACC114" in codes(check_transformed("batch", before, after))


NET = """\
from torch import LongTensor as LT
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 2)

    def forward(self, data):
        return self.look(data).mean(1)

    def look(self, data):
        rows = LT(data)
        rows = rows.cuda() if self.table.weight.is_cuda else rows
        return self.table(rows)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from helpers import Net


def collate(rows):
    return [r[0] for r in rows], torch.stack([r[1] for r in rows])


data = TensorDataset(torch.randint(0, 10, (8, 3)), torch.ones(8, 2))
loader = DataLoader(data, batch_size=2{collate})
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x) - y.cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_model_of_another_module_that_does_so_is_named(tmp_path: Path) -> None:
    assert said(together(tmp_path, NET, TRAIN.format(collate=""))) == [
        "`Net.forward` reads a tensor on the host that lies on the device now (helpers.py, line 14): "
        "put `.cpu()` after it there"
    ]


def test_it_is_not_where_it_may_be_given_a_list(tmp_path: Path) -> None:
    assert not said(together(tmp_path, NET, TRAIN.format(collate=", collate_fn=collate")))
