"""Scripts whose process group, wrapper and sums of gradients are in a module of their project."""

from __future__ import annotations

import pytest

from accelify.linting import lint
from accelify.project import Imports
from accelify.source import Source

TOOLS = """
import torch.distributed as dist
def setup():
    dist.init_process_group(backend="gloo")
def join():
    setup()
    return dist.get_rank()
def reduce_gradients(model):
    for value in model.parameters():
        if value.requires_grad:
            dist.all_reduce(value.grad.data)
"""
SCRIPT = """
import torch
from tools import join, reduce_gradients
rank = {rank}
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 2)).sum().backward()
    {reduced}
    optimizer.step()
if rank == 0:
    print("done")
"""


@pytest.mark.parametrize(
    ("rank", "reduced", "codes"),
    [
        ("join()", "reduce_gradients(model)", set()),
        ("join()", "pass", {"ACC705"}),
        # It runs on one device, as nothing joins.
        ("0", "pass", {"ACC102", "ACC106", "ACC402", "ACC702", "ACC712"}),
    ],
)
def test_what_joins_in_a_module_of_the_project(rank, reduced, codes, tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(rank=rank, reduced=reduced))
    assert {one.code for one in lint(Source.read(script), Imports()).findings} == codes
