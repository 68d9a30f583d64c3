"""Several prepared loaders that are read at once, and models that are given what the script makes of a batch."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


class Plain:
    """The Accelerator's names on one process without it."""

    def prepare(self, *objects):
        return objects

    def backward(self, loss):
        loss.backward()

    def gather_for_metrics(self, tensor):
        return tensor


def _loader(size, batch, seed):
    data = torch.randn(size, 1, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(data), batch_size=batch)


def _prepared(acc):
    """A model, its optimizer, and loaders whose last batches are shared out unevenly."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return acc.prepare(model, optimizer, _loader(7, 4, 0), _loader(20, 4, 1))


class Loop:
    """Steps on what is made of a batch, and the gradients that they had."""

    def __init__(self, acc, model, optimizer):
        self.acc, self.model, self.optimizer = acc, model, optimizer
        self.found = []

    def __call__(self, x):
        self.acc.backward(self.model(x * 2).mean())
        self.found.append(self.model.weight.grad.item())
        self.optimizer.zero_grad()

    def look(self, x):
        with torch.no_grad():
            self.found += self.acc.gather_for_metrics(self.model(x * 2)).flatten().tolist()


def kept_after_a_step(acc):
    model, optimizer, train, valid = _prepared(acc)
    step, kept = Loop(acc, model, optimizer), None
    for _ in range(2):
        for n, (x,) in enumerate(train):
            step(x)
            if n == 0:
                kept = iter(valid)
                step.look(next(kept)[0])
    return step.found


def kept_and_read_after_each_step(acc):
    model, optimizer, train, valid = _prepared(acc)
    step, kept = Loop(acc, model, optimizer), None
    for _ in range(2):
        for (x,) in train:
            step(x)
            kept = kept or iter(valid)
            step.look(next(kept)[0])
    return step.found


def evaluated_within_the_loop(acc):
    model, optimizer, train, valid = _prepared(acc)
    step = Loop(acc, model, optimizer)
    for n, (x,) in enumerate(train):
        if n == 0:
            for (v,) in valid:
                step.look(v)
        step(x)
        step.look(x)
    return step.found


def loop_in_a_loop(acc):
    model, optimizer, train, valid = _prepared(acc)
    step = Loop(acc, model, optimizer)
    for (x,) in valid:
        for (y,) in train:
            step(y)
        step(x)
    return step.found


LOOPS = [
    kept_after_a_step,
    kept_and_read_after_each_step,
    evaluated_within_the_loop,
    loop_in_a_loop,
]


def _run_all():
    found = []
    for loop in LOOPS:
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(loop(fresh_accelerator(split_batches=True)))
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_losses_belong_to_the_loop(ranks):
    results = run_ranks(ranks, _run_all)
    for i, loop in enumerate(LOOPS):
        torch.manual_seed(1)
        expected = loop(Plain())
        for result in results:
            assert result[i] == pytest.approx(expected, rel=1e-5), loop.__name__


def _steps_of_windows(kept):
    accelerator = fresh_accelerator(gradient_accumulation_steps=4)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train, valid = accelerator.prepare(
        model, optimizer, _loader(10 * accelerator.num_processes, 1, 0), _loader(40, 1, 1)
    )
    steps, iterator = [], None
    for n, (x,) in enumerate(train, 1):
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                steps.append(n)
        if n == 3 and kept:
            iterator = iter(valid)
            next(iterator)
    return steps, iterator is None


@pytest.mark.parametrize("kept", [False, True])
def test_windows_end_with_the_loop(kept):
    assert run_ranks(2, _steps_of_windows, kept) == [([4, 8, 10], not kept)] * 2
    assert _steps_of_windows(kept)[0] == [4, 8, 10]


def _ambiguous():
    accelerator = fresh_accelerator(split_batches=True)
    model, optimizer, train, valid = _prepared(accelerator)
    step, more = Loop(accelerator, model, optimizer), iter(valid)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for (x,) in train:
            next(more)
            step(x)
    return [str(w.message) for w in caught if "several prepared loaders" in str(w.message)]


def test_what_nothing_proves_is_said_once():
    for told in run_ranks(2, _ambiguous):
        assert len(told) == 1
        assert "give the model the batch itself" in told[0]
