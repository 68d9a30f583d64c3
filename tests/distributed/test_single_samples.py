"""Shares of one sample, on which batch norm cannot train: the error says so, and what to do."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import FullyShardedDataParallelPlugin
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


def _train(samples, sharded=False, drop_last=False, fails=False):
    plugin = {"fsdp_plugin": FullyShardedDataParallelPlugin()} if sharded else {}
    accelerator = fresh_accelerator(**plugin)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(samples, 4)), batch_size=2, drop_last=drop_last)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in loader:
        accelerator.backward(model(x).mean())
        optimizer.step()
        if fails:
            raise ValueError("the script's")


@pytest.mark.parametrize("sharded", [False, True])
def test_the_rest_of_the_data(sharded):
    for rank, outcome in enumerate(try_ranks(2, _train, 10, sharded)):
        assert f"rank {rank} got one sample of a batch that 2 processes share" in outcome.error
        assert "drop_last=True" in outcome.error
        assert "Expected more than 1 value per channel" in outcome.error


def test_no_such_rest():
    run_ranks(2, _train, 8)
    run_ranks(2, _train, 10, False, True)


def test_other_errors_stay():
    for outcome in try_ranks(2, _train, 8, False, False, True):
        assert "the script's" in outcome.error
        assert "processes share" not in outcome.error
