"""Small programs that are written for several processes, and what check finds in them."""

from __future__ import annotations

from textwrap import dedent

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source

HEAD = {
    "accelerate": """\
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
""",
    "torch": """\
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, TensorDataset

data = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
""",
}
LOOP = """
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""


def findings(text, tmp_path, head="torch"):
    """What check finds in a program."""
    path = tmp_path / "train.py"
    path.write_text(HEAD[head] + text)
    return checked(convert_project(Source.read(path), ConvertOptions(), Imports())[0]) or []


def named(text, tmp_path, head="torch"):
    """The codes that check gives a program, each with the text of its line."""
    text = dedent(text)
    lines = (HEAD[head] + text).splitlines()
    found = [one for one in findings(text, tmp_path, head) if one.severity in ("error", "warning")]
    return [(one.code, lines[one.line - 1].strip()) for one in found]


GROUP = """
dist.init_process_group("gloo")
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
"""
NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x))


model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
