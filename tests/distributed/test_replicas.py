"""Models whose replicas do not come together by themselves: other orders, new parts, reentrant checkpoints."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from accelify.runtime import FullyShardedDataParallelPlugin
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


class _Named(nn.Module):
    """Registers by the order of a set, which differs from process to process."""

    def __init__(self, kind, rank):
        super().__init__()
        names = ["full", "sliding"] if rank == 0 else ["sliding", "full"]
        self.layers = nn.ModuleDict()
        for name in names if kind == "weights" else sorted(names):
            self.layers[name] = nn.Linear(4, 4)
        for name in names:
            self.register_buffer(f"{name}_table", torch.full((4 if name == "full" else 1,), float(len(name))))

    def forward(self, x):
        return self.layers["full"](x) * self.full_table - self.layers["sliding"](x) * self.sliding_table


def _tables(kind, engine):
    torch.manual_seed(0)
    plugin = FullyShardedDataParallelPlugin() if engine == "fsdp" else None
    accelerator = fresh_accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(_Named(kind, accelerator.process_index))
    accelerator.backward(model(torch.randn(2, 4)).mean())
    inner = accelerator.unwrap_model(model)
    return inner.full_table.tolist(), inner.sliding_table.tolist()


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_buffers_are_brought_together_by_name(engine):
    assert run_ranks(2, _tables, "buffers", engine) == [([4.0] * 4, [7.0])] * 2


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_weights_in_another_order_are_refused(engine):
    for outcome in try_ranks(2, _tables, "weights", engine):
        assert (
            "_Named is not the same on all ranks: in place 0 rank 0 has layers.full.weight [4, 4], and rank 1 "
            "layers.sliding.weight [4, 4]" in outcome.error
        )


def _lazy(called):
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1))
    if called:
        torch.manual_seed(0)
        model(torch.randn(2, 3))
    return list(fresh_accelerator().prepare(model)(torch.ones(2, 3)).shape)


def test_weights_without_a_shape_are_refused():
    assert run_ranks(2, _lazy, True) == [[2, 1]] * 2
    for outcome in try_ranks(2, _lazy, False):
        assert "`0.weight` of Sequential has no shape before the first batch" in outcome.error


def _with_a_new_head(ranks):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(32, 4), batch_size=4, shuffle=True)
    inner, backward = model, torch.Tensor.backward
    if ranks:
        accelerator = fresh_accelerator(split_batches=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        backward = accelerator.backward
    for step, x in enumerate(loader):
        if step == 2:
            inner[1] = nn.Linear(4, 1)
            optimizer.add_param_group({"params": list(inner[1].parameters())})
        backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in inner.parameters()]


def test_a_layer_replaced_after_prepare():
    expected = _with_a_new_head(0)
    for weights in run_ranks(2, _with_a_new_head, 2):
        torch.testing.assert_close(weights, expected)


class _Shared(nn.Module):
    """One layer used several times, each within a checkpoint of its own."""

    def __init__(self, times, reentrant):
        super().__init__()
        self.times, self.reentrant = times, reentrant
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        x = x.clone().requires_grad_(True)
        for _ in range(self.times):
            x = checkpoint(self.layer, x, use_reentrant=self.reentrant)
        return self.head(torch.tanh(x))


def _checkpointed(ranks, times, reentrant, accumulation):
    torch.manual_seed(0)
    model = _Shared(times, reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(16, 4), batch_size=4)
    inner = model
    if not ranks:
        for number, x in enumerate(loader):
            (model(x).pow(2).mean() / accumulation).backward()
            if (number + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
    else:
        accelerator = fresh_accelerator(split_batches=True, gradient_accumulation_steps=accumulation)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()
    return [p.detach().clone() for p in inner.parameters()]


@pytest.mark.parametrize(
    ("times", "reentrant", "accumulation"), [(1, True, 1), (2, True, 1), (3, True, 2), (2, False, 1)]
)
def test_reentrant_checkpoints(times, reentrant, accumulation):
    expected = _checkpointed(0, times, reentrant, accumulation)
    for weights in run_ranks(2, _checkpointed, 2, times, reentrant, accumulation):
        torch.testing.assert_close(weights, expected)
