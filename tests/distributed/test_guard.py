"""Healthy jobs are waited for, however idle they look; what is proved to be wrong ends with an error."""

import os
import sys
import time
from datetime import timedelta

import pytest
import torch
from torch import nn

from accelify.runtime import InitProcessGroupKwargs, guard
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


class Idle(torch.autograd.Function):
    """Waits in its backward without a processor, as for a slow link, a disk or a compiler's workers."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Waiting(nn.Module):
    """With sparse gradients, which are averaged outside of torch's reducer, or without."""

    def __init__(self, sparse):
        super().__init__()
        self.words, self.out = nn.Embedding(5, 4, sparse=sparse), nn.Linear(4, 1)

    def forward(self, x, seconds):
        return self.out(Idle.apply(self.words(x), seconds))


def _idle(sparse, seconds):
    """`seconds` for every rank."""
    accelerator = fresh_accelerator()
    model = accelerator.prepare(Waiting(sparse))
    accelerator.backward(model(torch.tensor([1, 2]), seconds[accelerator.process_index]).sum())
    return accelerator.reduce(1)


@pytest.mark.parametrize(("sparse", "seconds"), [(False, (24, 24)), (True, (0, 7)), (False, (7, 0))])
def test_idle_backwards_are_waited_for(sparse, seconds):
    assert run_ranks(2, _idle, sparse, seconds) == [2, 2]


def _extra_backward():
    accelerator = fresh_accelerator()
    model = accelerator.prepare(nn.Linear(2, 1))
    alone = nn.Linear(2, 1)
    for _ in range(2):
        accelerator.backward(model(torch.ones(1, 2)).sum())
        if accelerator.is_main_process:
            accelerator.backward(alone(Idle.apply(torch.ones(1, 2, requires_grad=True), 4)).sum())
        assert accelerator.reduce(1) == 2
    return accelerator.gather(torch.ones(1)).tolist()


def test_a_backward_that_needs_no_other_rank():
    assert run_ranks(2, _extra_backward) == [[1.0, 1.0]] * 2


def _joined(directory):
    accelerator = fresh_accelerator()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerator.join_uneven_inputs([model]):
        for _ in range(3 + 2 * accelerator.process_index):
            accelerator.backward(model(torch.ones(2, 2)).sum())
            optimizer.step()
            optimizer.zero_grad()
    gathered = accelerator.gather(torch.tensor([float(accelerator.process_index)])).tolist()
    accelerator.save_state(f"{directory}/c")
    # One that is slow in a backward after it is not taken for one that is ahead.
    accelerator.backward(model(torch.ones(2, 2)).sum())
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return gathered


def test_collectives_after_ranks_had_different_numbers_of_batches(tmp_path):
    assert run_ranks(2, _joined, str(tmp_path)) == [[0.0, 1.0]] * 2
    assert (tmp_path / "c" / "accelify-checkpoint.json").is_file()


def _different_roads():
    """One rank averages in the reducer, the other outside of it, as its parameters were moved."""
    accelerator = fresh_accelerator()
    model = accelerator.prepare(nn.Linear(2, 1))
    if accelerator.is_main_process:
        model.double().float()
    accelerator.backward(model(torch.ones(1, 2)).sum())


def test_a_model_that_one_rank_has_moved():
    main, other = try_ranks(2, _different_roads, timeout=60)
    assert "whose parameters this rank has moved or cast" in main.error
    assert "rank 1: a backward pass at" in main.error
    assert not other.ok


def _late(where):
    """Rank 1 comes long after the process group's timeout."""
    limit = InitProcessGroupKwargs(timeout=timedelta(seconds=20))
    begun = time.monotonic()
    if where == "start":
        start = guard.start

        def slow(rank, *args):
            time.sleep(90 * rank)
            start(rank, *args)

        guard.start = slow
    try:
        accelerator = fresh_accelerator(kwargs_handlers=[limit])
        time.sleep(90 * accelerator.process_index)
        accelerator.wait_for_everyone()
    finally:
        if time.monotonic() - begun > 80 and int(torch.distributed.get_rank()) == 0:
            raise AssertionError("rank 0 has waited for longer than the process group's timeout")


@pytest.mark.parametrize("where", ["start", "collective"])
def test_the_timeout_of_the_process_group_holds(where):
    main, _ = try_ranks(2, _late, where, timeout=300)
    assert not main.ok
    assert "has waited for longer" not in main.error
    if where == "collective":
        assert "rank 0 has waited in wait_for_everyone at" in main.error
        assert "for rank(s) 1 as long as the process group's timeout of 20 s" in main.error


def _mode():
    accelerator = fresh_accelerator()
    model = accelerator.prepare(nn.Linear(2, 1))
    accelerator.backward(model(torch.ones(1, 2)).sum())
    accelerator.wait_for_everyone()
    return guard.is_on(), accelerator.reduce(1)


def test_it_can_be_switched_off():
    assert run_ranks(2, _mode, env={"ACCELIFY_GUARD": "off"}) == [(False, 2)] * 2
    assert run_ranks(2, _mode, env={"ACCELIFY_GUARD": "on"}) == [(True, 2)] * 2
    for outcome in try_ranks(2, _mode, env={"ACCELIFY_GUARD": "sometimes"}):
        assert "ACCELIFY_GUARD must be one of on, warn, off, not 'sometimes'" in outcome.error


def _without_an_interface(capture):
    """As beside NCCL, where one host has no network interface that gloo can use."""
    rank = int(os.environ["RANK"])

    def refused():
        raise RuntimeError("Unable to resolve hostname to a (local) address")

    torch.distributed.get_backend = lambda *_: "nccl"
    if rank:
        torch.distributed.ProcessGroupGloo.create_default_device = refused
    with open(f"{capture}/{rank}", "w") as file:
        before, sys.stderr = sys.stderr, file
        accelerator = fresh_accelerator()
        sys.stderr = before
    return guard.is_on(), accelerator.reduce(1)


def test_hosts_of_which_one_has_no_interface_for_it(tmp_path):
    assert run_ranks(2, _without_an_interface, str(tmp_path)) == [(False, 2)] * 2
    assert "gloo has no network interface on every host" in (tmp_path / "0").read_text()
    assert (tmp_path / "1").read_text() == ""


def _warned(capture):
    accelerator = fresh_accelerator()
    rank = accelerator.process_index
    with open(f"{capture}/{rank}", "w") as file:
        before, sys.stderr = sys.stderr, file
        # Of one size, so that it goes on as plain torch does.
        kind = torch.float32 if rank else torch.int32
        accelerator.gather(torch.ones(2, dtype=kind))
        sys.stderr = before
    return accelerator.reduce(1)


def test_it_can_warn(tmp_path):
    assert run_ranks(2, _warned, str(tmp_path), env={"ACCELIFY_GUARD": "warn"}) == [2, 2]
    for rank in "01":
        told = (tmp_path / rank).read_text()
        assert "accelify: ranks disagree on a collective: rank 0: gather of int32[2] at " in told
        assert "rank 1: gather of float32[2]" in told


def _gathered_of_all_sizes():
    accelerator = fresh_accelerator()
    wrong = []
    for count in (0, 1, 7, 512, 5000):
        for dtype in (torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex64):
            ranks = [torch.arange(count).add(rank).remainder(3).to(dtype) for rank in range(2)]
            if not torch.equal(accelerator.gather(ranks[accelerator.process_index]), torch.cat(ranks)):
                wrong.append((count, dtype))
    columns = torch.arange(6.0).view(2, 3).T
    return wrong, accelerator.gather(columns).tolist() == columns.tolist() * 2


def _one_small_one_large():
    accelerator = fresh_accelerator()
    accelerator.gather(torch.zeros(1 if accelerator.is_main_process else 5000))


def test_small_tensors_that_travel_with_the_agreement_are_what_others_are():
    assert run_ranks(2, _gathered_of_all_sizes) == [([], True)] * 2
    for outcome in try_ranks(2, _one_small_one_large):
        assert "ranks disagree on a collective: rank 0: gather of float32[1]" in outcome.error
