"""Ranks that disagree, end, raise or are killed: the others get an error that says so, within seconds."""

import os
import resource
import signal
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import RanksDisagreeError, checkpoint_folders
from accelify.runtime.launch.port import reserved_port
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed

# Against hangs; an error takes about four seconds.
LIMIT = 30


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _prepared(accelerator, model=None):
    model = model or nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return accelerator.prepare(model, optimizer)


def _step(accelerator, model, optimizer):
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(3, 2)).mean())
    optimizer.step()


def _disagreements():
    """What each rank was told, for several disagreements in one group of processes."""
    accelerator = fresh_accelerator()
    first = accelerator.is_main_process
    told = []

    def expect(function):
        begun = time.monotonic()
        with pytest.raises(RanksDisagreeError) as caught:
            function()
        assert time.monotonic() - begun < 10
        told.append(str(caught.value))

    ones = torch.ones(3)
    expect(lambda: accelerator.gather(ones) if first else accelerator.reduce(ones))
    expect(lambda: accelerator.gather(ones[: 3 if first else 2]))
    expect(lambda: accelerator.reduce(ones if first else ones.double()))
    expect(lambda: accelerator.wait_for_everyone() if first else accelerator.gather_for_metrics(ones))
    expect(
        lambda: (
            accelerator.gather_for_metrics(["a"], use_gather_object=True)
            if first
            else accelerator.gather(ones)
        )
    )
    # They can talk again afterwards.
    assert accelerator.reduce(1) == 2
    return told


def test_ranks_that_disagree():
    first, second = run_ranks(2, _disagreements, timeout=LIMIT)
    assert first == second
    operation, shape, dtype, barrier, objects = first
    assert "rank 0: gather of float32[3] at " in operation
    assert "rank 1: reduce (sum) of float32[3] at " in operation
    assert "test_faults.py:" in operation
    assert "rank 0: gather of float32[3]" in shape
    assert "rank 1: gather of float32[2]" in shape
    assert "rank 1: reduce (sum) of float64[3]" in dtype
    assert "rank 0: wait_for_everyone" in barrier
    assert "rank 0: gather of objects" in objects


def _gather_on_one_rank():
    accelerator = fresh_accelerator()
    model, optimizer = _prepared(accelerator)
    for i in range(3):
        _step(accelerator, model, optimizer)
        if i == 1 and accelerator.is_main_process:
            accelerator.gather(torch.ones(1))


def test_collective_under_a_rank_condition():
    main, other = try_ranks(2, _gather_on_one_rank, timeout=LIMIT)
    assert "rank 0: gather of float32[1] at " in main.error
    assert "rank 1: a backward pass at " in main.error
    assert not other.ok
    assert "rank 0 " in other.error


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x):
        return self.a(x) + (self.b(x) if torch.distributed.get_rank() == 0 else 0)


def _other_parameters():
    accelerator = fresh_accelerator()
    torch.manual_seed(0)
    model, optimizer = _prepared(accelerator, Branching())
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(3, 2)).mean())
    gradients = [p.grad.tolist() for p in model.parameters()]
    optimizer.step()
    return gradients, accelerator.reduce(1)


def test_ranks_that_use_other_parameters():
    """What one rank leaves out counts as zero there; it is no disagreement."""
    whole, half = [[[1.0, 1.0]], [1.0]], [[[0.5, 0.5]], [0.5]]
    assert run_ranks(2, _other_parameters, timeout=LIMIT) == [([*whole, *half], 2)] * 2


def _leave(how, where):
    accelerator = fresh_accelerator()
    model, optimizer = _prepared(accelerator)
    for _ in range(2):
        _step(accelerator, model, optimizer)
    if accelerator.process_index == 1:
        if how == "raises":
            raise ZeroDivisionError("too bad")
        if how == "ends":
            return "ended"
        if where == "backward":
            # With its own gradients computed and not yet averaged.
            next(model.parameters()).register_hook(lambda _: _die())
        else:
            _die()
    if where == "gather":
        accelerator.gather(torch.ones(1))
    _step(accelerator, model, optimizer)
    _step(accelerator, model, optimizer)
    return "went on"


@pytest.mark.parametrize(
    ("how", "words", "where"),
    [
        *(("raises", "rank 1 raised ZeroDivisionError: too bad at ", w) for w in ("gather", "step")),
        *(("ends", "rank 1 ended its script", w) for w in ("gather", "step")),
        *(("is killed", "rank 1 is gone (killed", w) for w in ("gather", "step", "backward")),
    ],
)
def test_rank_that_leaves(how, words, where):
    ranks = try_ranks(3 if how == "is killed" else 2, _leave, how, where, timeout=LIMIT)
    for rank, outcome in enumerate(ranks):
        if rank != 1:
            assert outcome.error is not None
            assert words in outcome.error, outcome.error


def _main_is_killed():
    accelerator = fresh_accelerator()
    assert accelerator.reduce(1) == 3
    if accelerator.is_main_process:
        _die()
    accelerator.gather(torch.ones(1))


def test_killed_rank_that_kept_the_store():
    with reserved_port() as port:
        env = {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(port)}
        outcomes = try_ranks(3, _main_is_killed, timeout=LIMIT, env=env)
    for outcome in outcomes[1:]:
        assert "rank 0 is gone (killed" in outcome.error


def _killed_while_saving(directory):
    accelerator = fresh_accelerator()
    model, optimizer = _prepared(accelerator)
    accelerator.save_state(f"{directory}/c")
    _step(accelerator, model, optimizer)
    if accelerator.process_index == 1:
        accelerator.register_save_state_pre_hook(lambda *_: _die())
    accelerator.save_state(f"{directory}/c")


def _main_killed_while_saving(directory):
    accelerator = fresh_accelerator()
    model, optimizer = _prepared(accelerator)
    accelerator.save_state(f"{directory}/c")
    _step(accelerator, model, optimizer)
    # All files are there; only the marker is missing.
    checkpoint_folders.complete = lambda *_: _die()
    accelerator.save_state(f"{directory}/c")


def _load(directory):
    accelerator = fresh_accelerator()
    model, _ = _prepared(accelerator)
    accelerator.load_state(f"{directory}/c")
    accelerator.save_state(f"{directory}/c")
    return [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize(("function", "dead"), [(_killed_while_saving, 1), (_main_killed_while_saving, 0)])
def test_killed_while_saving(function, dead, tmp_path):
    outcomes = try_ranks(2, function, str(tmp_path), timeout=LIMIT)
    assert outcomes[dead].exit_code == -signal.SIGKILL
    assert f"rank {dead} is gone" in outcomes[1 - dead].error
    first, second = run_ranks(2, _load, str(tmp_path))
    assert first == second
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def _disk_full(directory):
    accelerator = fresh_accelerator()
    _prepared(accelerator)
    accelerator.save_state(f"{directory}/c")
    # The nearest to a full disk that needs no disk of its own.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with pytest.raises(RuntimeError, match=r"could not be written: .* \(rank 0\); earlier checkpoints are"):
        accelerator.save_state(f"{directory}/c")
    # Nobody is out of step.
    return accelerator.reduce(1)


def test_full_disk(tmp_path):
    assert run_ranks(2, _disk_full, str(tmp_path), timeout=LIMIT) == [2, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    run_ranks(2, _load, str(tmp_path))


def _train_until_preempted(directory, term_at=None, resume=False):
    """Steps done, and weights; with `term_at`, one rank gets SIGTERM there as from a queue near its time limit."""
    torch.manual_seed(0)
    accelerator = fresh_accelerator(split_batches=True)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    data = torch.randn(22, 2)
    loader = DataLoader(TensorDataset(data), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.watch_preemption()
    if resume:
        torch.manual_seed(99)
        accelerator.load_state(f"{directory}/c")
    steps = 0
    for _ in range(2 if not resume else 1):
        for (x,) in loader:
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == term_at and accelerator.process_index == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if accelerator.check_preemption():
                accelerator.save_state(f"{directory}/c")
                return steps, None
    return steps, [p.tolist() for p in model.parameters()]


def test_sigterm_writes_a_checkpoint_and_the_job_resumes(tmp_path):
    # Six batches an epoch: stopped in the middle of the second.
    whole = run_ranks(2, _train_until_preempted, str(tmp_path), timeout=LIMIT)
    assert whole[0] == whole[1]
    assert whole[0][0] == 12
    assert run_ranks(2, _train_until_preempted, str(tmp_path), 8) == [(8, None)] * 2
    rest = run_ranks(2, _train_until_preempted, str(tmp_path), None, True)
    assert rest == [(4, whole[0][1])] * 2


def _slow():
    accelerator = fresh_accelerator()
    if accelerator.is_main_process:
        time.sleep(5)
    return accelerator.reduce(1)


def test_a_slow_rank_is_no_fault():
    assert run_ranks(2, _slow, timeout=LIMIT) == [2, 2]
