"""Ranks that run out of batches at different times."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import DataLoaderConfiguration
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


def _uneven():
    accelerator = fresh_accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(10.0)[:, None]), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen = []
    with accelerator.join_uneven_inputs([model]):
        for (x,) in loader:
            optimizer.zero_grad()
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            seen.append(x.flatten().tolist())
    with accelerator.join_uneven_inputs([model], even_batches=True):
        even = sum(1 for _ in loader)
    return seen, even, len(loader), torch.cat([p.detach().flatten() for p in model.parameters()])


class HalfUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x):
        return self.used(x)


def _join_half_used(begun):
    accelerator = fresh_accelerator()
    model = accelerator.prepare(HalfUsed())
    if begun:
        accelerator.backward(model(torch.ones(1, 1)).mean())
    with (
        pytest.raises(RuntimeError, match="HalfUsed cannot be trained in join_uneven_inputs"),
        accelerator.join_uneven_inputs([model]),
    ):
        accelerator.backward(model(torch.ones(1, 1)).mean())


def _join_nothing():
    accelerator = fresh_accelerator()
    with (
        pytest.raises(
            ValueError, match="join_uneven_inputs needs the prepared models that are trained in it"
        ),
        accelerator.join_uneven_inputs([nn.Linear(1, 1)]),
    ):
        pass


def test_a_model_that_is_not_prepared_cannot_be_joined():
    run_ranks(2, _join_nothing, timeout=40)


@pytest.mark.parametrize("begun", [True, False])
def test_models_that_cannot_be_joined_are_refused(begun):
    run_ranks(2, _join_half_used, begun, timeout=40)


def test_ranks_may_run_out_at_different_times():
    (a, even_a, length_a, weights_a), (b, even_b, length_b, weights_b) = run_ranks(2, _uneven)
    assert (len(a), len(b)) == (length_a, length_b) == (3, 2)
    assert even_a == even_b == 3
    assert sorted(n for part in a + b for n in part) == list(range(10))
    assert torch.equal(weights_a, weights_b)
