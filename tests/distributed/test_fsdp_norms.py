"""Clipping by every order of norm, where a layer has fewer rows than there are ranks."""

import pytest
import torch
from torch import nn

from accelify.runtime import FullyShardedDataParallelPlugin
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed
ORDERS = (1.0, 2.0, float("inf"))


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))


def _norms():
    """The norm before clipping, and the largest gradient after it, for every order."""
    accelerator = fresh_accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    model = accelerator.prepare(_model())
    found = []
    for order in ORDERS:
        model.zero_grad()
        accelerator.backward(model(torch.ones(3, 4)).sum())
        norm = accelerator.clip_grad_norm_(model.parameters(), 0.5, norm_type=order).item()
        found.append((norm, max(p.grad.full_tensor().abs().max().item() for p in model.parameters())))
    return found


def test_norms_with_an_empty_shard():
    results = run_ranks(2, _norms)
    model = _model()
    for i, order in enumerate(ORDERS):
        model.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type=order).item()
        largest = max(p.grad.abs().max().item() for p in model.parameters())
        for found in results:
            assert found[i] == pytest.approx((norm, largest), rel=1e-5)
