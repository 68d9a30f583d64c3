"""Batches made by hand: the losses of one process, whatever the number of ranks."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.distributed.processes import fresh_accelerator, run_ranks


def train(draw, epochs=3, clip=False):
    """A loop over slices of a tensor, or over batches drawn at random; losses of whole batches, and the weights."""
    accelerator = fresh_accelerator()
    torch.manual_seed(3)
    inputs, targets = torch.randn(43, 5), torch.randn(43, 2)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for _ in range(epochs):
        order = torch.randperm(43)
        for start in range(0, 43, 16):
            index = torch.randint(0, 43, (7,)) if draw else order[start : start + 16]
            x, y = inputs[index], targets[index]
            x, y = accelerator.shard_batch(x, y)
            output = model(x)
            loss = nn.functional.mse_loss(output, y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            if clip:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            whole, wanted = accelerator.gather_for_metrics((output.detach(), y))
            losses.append(nn.functional.mse_loss(whole, wanted).item())
    return losses, [p.detach().tolist() for p in model.parameters()]


@pytest.mark.distributed
@pytest.mark.parametrize("draw", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_losses_are_those_of_one_process(ranks, draw):
    expected, weights = train(draw, clip=True)
    for losses, own in run_ranks(ranks, train, draw, 3, True):
        assert losses == pytest.approx(expected, rel=1e-5)
        for one, other in zip(own, weights, strict=True):
            torch.testing.assert_close(torch.tensor(one), torch.tensor(other))


def parted_streams():
    """Ranks whose random streams have parted still work on shares of one batch."""
    accelerator = fresh_accelerator()
    torch.manual_seed(accelerator.process_index)
    batch = torch.randn(6, 2)
    own = accelerator.shard_batch(batch)
    return batch.tolist(), accelerator.gather_for_metrics(own).tolist()


@pytest.mark.distributed
def test_the_batch_is_the_main_process_s():
    (first, gathered), (other, gathered_there) = run_ranks(2, parted_streams)
    assert first != other
    assert gathered == gathered_there == first


def gathers_arrays():
    accelerator = fresh_accelerator()
    batch = torch.arange(7.0)
    own = accelerator.shard_batch(batch)
    total, array = accelerator.gather_for_metrics((own * 2, own.numpy() * 3))
    return total.tolist(), type(array).__name__, np.asarray(array).tolist()


@pytest.mark.distributed
def test_arrays_are_gathered_like_tensors():
    for total, kind, array in run_ranks(2, gathers_arrays):
        assert total == [2.0 * i for i in range(7)]
        assert (kind, array) == ("ndarray", [3.0 * i for i in range(7)])


def gathers_outputs_that_are_not_there():
    accelerator = fresh_accelerator()
    own = accelerator.shard_batch(torch.arange(3.0))
    whole, without, parts = accelerator.gather_for_metrics((own, None, {"aux": None}))
    return whole.tolist(), without, parts, accelerator.gather_for_metrics((None, None))


@pytest.mark.distributed
def test_none_stays_none():
    for found in run_ranks(2, gathers_outputs_that_are_not_there):
        assert found == ([0.0, 1.0, 2.0], None, {"aux": None}, (None, None))


def test_one_process_gets_what_it_gave():
    accelerator = fresh_accelerator()
    x, y = torch.ones(3), [1, 2, 3]
    assert accelerator.shard_batch(x) is x
    assert accelerator.shard_batch(x, y) == (x, y)


def refuses():
    with pytest.raises(ValueError, match="one entry a sample"):
        fresh_accelerator().shard_batch(torch.tensor(1.0))


@pytest.mark.distributed
def test_a_batch_without_samples_is_an_error():
    run_ranks(2, refuses)
