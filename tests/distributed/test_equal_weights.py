"""Weights that the script changes outside of the optimizer's step, by random numbers: the same on every rank."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import LocalSGD, gather_object
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed

BATCHES = 8


def _add_noise(model, step):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.01)


def _add_noise_to_data(model, step):
    for p in model.parameters():
        p.data = p.data + torch.randn_like(p) * 0.01


def _begin_layer_again(model, step):
    if step % 4 == 3:
        model[0].reset_parameters()


def _begin_rows_again(model, step):
    if step == 1:
        with torch.no_grad():
            dead = model[0].weight.norm(dim=1) < 0.6
            model[0].weight[dead] = torch.randn(int(dead.sum()), 4)


def _draw_at_the_end(model, step):
    if step == 2 * BATCHES - 1:
        nn.init.xavier_uniform_(model[2].weight)


def _clip(model, step):
    with torch.no_grad():
        for p in model.parameters():
            p.clamp_(-0.3, 0.3)


CHANGES = {
    f.__name__: f
    for f in (
        _add_noise,
        _add_noise_to_data,
        _begin_layer_again,
        _begin_rows_again,
        _draw_at_the_end,
        _clip,
    )
}


def _trained(change, prepares=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(8 * BATCHES, 4), torch.randn(8 * BATCHES, 1))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    backward = torch.Tensor.backward
    module = model
    if prepares:
        accelerator = fresh_accelerator(split_batches=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        backward = accelerator.backward
    step = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            for x, y in loader:
                backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                CHANGES[change](module, step)
                step += 1
    sentences = [str(w.message) for w in told if "took rank 0's" in str(w.message)]
    return [p.detach().clone() for p in module.parameters()], len(sentences)


@pytest.mark.parametrize("change", CHANGES)
def test_weights_drawn_in_the_loop(change):
    expected, _ = _trained(change, prepares=False)
    ranks = run_ranks(2, _trained, change)
    for weights, _ in ranks:
        torch.testing.assert_close(weights, expected)
    for weight, other in zip(ranks[0][0], ranks[1][0], strict=True):
        assert torch.equal(weight, other)
    # Said once, and nothing is said where every rank comes to the same.
    assert [said for _, said in ranks] == [int(change != "_clip"), 0]


def _main_alone_looks(steps):
    """An average of the weights is tried out on the main process alone: nobody may wait for the others there."""
    torch.manual_seed(0)
    accelerator = fresh_accelerator(split_batches=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(torch.randn(8 * steps, 4)), batch_size=8, shuffle=True)
    wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in loader:
        accelerator.backward(wrapped(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            with torch.no_grad():
                held = model.weight.clone()
                model.weight.zero_()
                model(x)
                model.weight.copy_(held)
    return gather_object([model.weight.tolist()])


def test_weights_swapped_on_one_rank_for_a_while():
    first, second = run_ranks(2, _main_alone_looks, 5)[0]
    assert first == second


def _apart():
    """Between two meetings of LocalSGD each rank has weights of its own."""
    torch.manual_seed(0)
    accelerator = fresh_accelerator()
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.arange(8.0).view(8, 1), batch_size=1, shuffle=True)
    wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    differed = []
    with LocalSGD(accelerator, wrapped, local_sgd_steps=4) as local:
        for number, x in enumerate(loader):
            accelerator.backward(wrapped(x).mean())
            optimizer.step()
            optimizer.zero_grad()
            if number < 3:
                differed.append(model.weight.item())
            local.step()
    return gather_object([differed])


def test_ranks_that_train_on_their_own():
    first, second = run_ranks(2, _apart)[0]
    assert all(a != b for a, b in zip(first, second, strict=True))
