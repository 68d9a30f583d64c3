"""Process control and collectives, many checks in one group of processes."""

import copy
import io
import os
import pickle
from contextlib import redirect_stdout
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import (
    DistributedDataParallelKwargs,
    DistributedType,
    LocalSGD,
    PartialState,
    RanksDisagreeError,
    broadcast,
    broadcast_object_list,
    find_executable_batch_size,
    gather_object,
    get_logger,
    set_seed,
    synchronize_rng_states,
)
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


@dataclass
class Result:
    loss: torch.Tensor


def check_bare_state(_):
    state = PartialState()
    assert state.num_processes == torch.distributed.get_world_size() > 1
    assert state.distributed_type == DistributedType.MULTI_CPU
    assert state.backend == "gloo"
    assert state.device.type == "cpu"


def check_where_code_runs(acc):
    rank, ranks = acc.process_index, acc.num_processes
    assert acc.is_main_process == acc.is_local_main_process == (rank == 0)
    assert acc.is_last_process == (rank == ranks - 1)
    assert acc.use_distributed
    out = io.StringIO()
    with redirect_stdout(out):
        acc.print("hello")
    assert out.getvalue() == ("hello\n" if rank == 0 else "")
    assert acc.on_main_process(lambda: 5)() == (5 if rank == 0 else None)
    assert acc.on_last_process(lambda: 5)() == (5 if rank == ranks - 1 else None)
    assert acc.on_process(lambda: 5, process_index=1)() == (5 if rank == 1 else None)
    assert acc.on_local_process(local_process_index=1)(lambda: 5)() == (5 if rank == 1 else None)


def check_main_process_first(acc):
    path = f"/tmp/accelify-{os.environ['MASTER_PORT']}"
    try:
        with acc.main_process_first():
            if acc.is_main_process:
                open(path, "w").close()
            assert os.path.exists(path)
        acc.wait_for_everyone()
    finally:
        if acc.is_main_process:
            os.unlink(path)


def check_split_between_processes(acc):
    ranks = acc.num_processes
    with acc.split_between_processes(list(range(5))) as share:
        assert gather_object(list(share)) == list(range(5))
    with acc.split_between_processes(list(range(5)), apply_padding=True) as share:
        assert len({len(s) for s in gather_object([share])}) == 1
    with acc.split_between_processes(torch.arange(5), apply_padding=True) as share:
        assert acc.gather(share).shape[0] % ranks == 0
    with acc.split_between_processes({"a": [1, 2, 3], "b": "xyz"}) as share:
        assert len(share["a"]) == len(share["b"])
    with (
        pytest.raises(ValueError, match="differ in length"),
        acc.split_between_processes({"a": [1], "b": []}),
    ):
        pass


def check_trigger(acc):
    assert not acc.check_trigger()
    if acc.is_last_process:
        acc.set_trigger()
    assert acc.check_trigger()
    assert not acc.check_trigger()


def check_gather(acc):
    rank, ranks = acc.process_index, acc.num_processes
    mine = {
        "a": torch.tensor([rank, rank]),
        "b": (torch.tensor(float(rank)), Result(torch.ones(1, 2) * rank)),
    }
    found = acc.gather(mine)
    assert found["a"].tolist() == [r for r in range(ranks) for _ in range(2)]
    assert found["b"][0].tolist() == list(range(ranks))
    assert found["b"][1].loss.shape == (ranks, 2)
    assert gather_object([rank, "a"]) == [x for r in range(ranks) for x in (r, "a")]
    with pytest.raises(TypeError, match="gather works on tensors in .* not on int"):
        acc.gather([5])


def check_reduce(acc):
    rank, ranks = acc.process_index, acc.num_processes
    total = sum(range(ranks))
    mine = torch.tensor([float(rank)])
    tensor, number, whole, nested = acc.reduce(
        (mine, float(rank), 2**60 + rank, {"n": rank}), reduction="sum"
    )
    assert tensor.tolist() == [total]
    assert mine.tolist() == [rank]
    assert number == total
    assert isinstance(number, float)
    assert isinstance(nested["n"], int)
    assert nested["n"] == total
    assert whole == ranks * 2**60 + total if ranks * 2**60 < 2**63 else True
    assert acc.reduce(rank, "mean") == total / ranks
    alike = acc.reduce({"step": 19, "rate": 0.1}, "mean")
    assert alike == {"step": 19, "rate": 0.1}
    assert type(alike["step"]) is int
    assert acc.reduce(torch.tensor([rank]), "mean").tolist() == [total / ranks]
    assert acc.reduce(0 if rank else 0.5, "sum") == 0.5
    assert acc.reduce(rank, "max") == ranks - 1
    assert acc.reduce(mine, "sum", scale=0.5).tolist() == [total / 2]
    assert acc.reduce(True, "sum") == ranks
    whole, rows = acc.reduce((np.int64(rank), np.full((2,), float(rank))), "sum")
    assert type(whole) is int
    assert (whole, rows.tolist()) == (total, [total, total])
    assert acc.reduce(np.float32(rank), "mean") == total / ranks
    with pytest.raises(ValueError, match="reduction must be one of"):
        acc.reduce(1, "median")
    with pytest.raises(ValueError, match="at most 64 bits"):
        acc.reduce(2**70)


def check_broadcast(acc):
    rank = acc.process_index
    assert broadcast({"a": torch.tensor([rank])}, from_process=1)["a"].tolist() == [1]
    assert broadcast_object_list([rank, {"x": rank}]) == [0, {"x": 0}]


def check_pad_across_processes(acc):
    rank, ranks = acc.process_index, acc.num_processes
    padded = acc.pad_across_processes({"x": torch.ones(rank + 1, 2)}, pad_index=-1)["x"]
    assert padded.shape == (ranks, 2)
    assert padded[rank + 1 :].unique().tolist() in ([], [-1.0])
    assert acc.pad_across_processes(torch.ones(1, rank + 1), dim=1, pad_first=True)[0, -1] == 1
    assert acc.gather(padded).shape == (ranks * ranks, 2)


def check_random_states(acc):
    set_seed(1, device_specific=True)
    assert len(set(acc.gather(torch.rand(1)).tolist())) == acc.num_processes
    generator = torch.Generator().manual_seed(acc.process_index)
    synchronize_rng_states(["torch", "python", "numpy", "generator"], generator)
    assert len(set(acc.gather(torch.rand(1, generator=generator)).tolist())) == 1
    assert len(set(acc.gather(torch.rand(1)).tolist())) == 1
    with pytest.raises(ValueError, match="rng_type must be one of"):
        synchronize_rng_states(["dice"])


def check_unseeded_scripts_agree(acc):
    torch.manual_seed(acc.process_index)
    acc = fresh_accelerator()
    assert len(set(acc.gather(torch.rand(1)).tolist())) == 1


def check_models_begin_and_stay_equal(acc):
    torch.manual_seed(acc.process_index)
    model, frozen = nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)
    frozen.running_mean += acc.process_index
    model, frozen = acc.prepare(model, frozen)
    assert type(frozen) is nn.BatchNorm1d
    for t in (acc.unwrap_model(model).weight, frozen.running_mean):
        first = t.detach().clone()
        assert torch.equal(broadcast(first.clone()), first)
    assert list(model.state_dict()) == list(acc.get_state_dict(model)) == ["weight", "bias"]
    assert [n for n, _ in model.named_parameters()] == ["weight", "bias"]
    assert model.in_features == 2
    acc.unwrap_model(model).dim = 7
    assert model.dim == 7
    with pytest.raises(AttributeError, match="nothing"):
        model.nothing  # noqa: B018
    model.load_state_dict(nn.Linear(2, 2).state_dict())


def check_walks_find_the_scripts_own_parts(acc):
    class Net(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(2, 2), nn.Sequential(nn.Dropout()))
            self.scale = nn.Parameter(torch.ones(1))

    inner = Net()
    holder = nn.ModuleDict({"net": acc.prepare(inner)})
    model = holder["net"]
    assert model is not inner
    assert list(model._modules) == [n for n, _ in model.named_children()] == ["0", "1"]
    assert [n for n, _ in model.named_modules()] == ["", "0", "1", "1.0"]
    assert list(model.modules()) == list(inner.modules())
    assert not any(m.training for m in [model.eval(), *inner.modules()])
    assert all(m.training for m in [model.train(), *inner.modules()])
    seen = []
    model.apply(seen.append)
    assert seen[-1] is inner
    assert model.double() is model
    assert inner.scale.dtype == inner[0].weight.dtype == torch.float64
    holder.load_state_dict(holder.state_dict())
    assert "net.scale" in dict(holder.named_parameters())


def check_parts_that_are_replaced_are_averaged(acc):
    model = acc.prepare(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)))
    inner = acc.unwrap_model(model)
    replacements = [
        lambda: setattr(inner[0], "weight", nn.Parameter(inner[0].weight.data.clone())),
        lambda: inner.__setitem__(1, copy.deepcopy(inner[1])),
        lambda: inner.append(nn.Linear(1, 1, bias=False)),
    ]
    for replace in [lambda: None, *replacements]:
        replace()
        model.zero_grad()
        acc.backward(model(torch.full((2, 2), float(acc.process_index + 1))).mean())
        for p in inner.parameters():
            assert torch.equal(broadcast(p.grad.clone()), p.grad)


def check_files_hold_the_scripts_own_model(acc):
    inner = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh())
    model = acc.prepare(inner)
    held = {"net": model, "parts": [model], "again": nn.Sequential(model), "plain": inner}
    for write in (torch.save, pickle.dump, acc.save):
        file = io.BytesIO()
        write(held, file)
        if write == acc.save and not acc.is_main_process:
            continue
        assert b"accelify" not in file.getvalue()
        file.seek(0)
        found = pickle.load(file) if write is pickle.dump else torch.load(file, weights_only=False)
        assert {type(found["net"]), type(found["parts"][0]), type(found["again"][0])} == {nn.Sequential}
        assert torch.equal(found["net"][0].weight, inner[0].weight)


def check_copies_in_memory_are_wrapped_as_before(acc):
    model = acc.prepare(nn.Linear(2, 1, bias=False))
    acc.backward(model(torch.ones(1, 2)).mean())
    for copied in (copy.deepcopy(model), copy.deepcopy([model, model])[1]):
        assert type(copied) is type(model)
        assert acc.unwrap_model(copied).weight is not acc.unwrap_model(model).weight
        copied.zero_grad()
        acc.backward(copied(torch.full((1, 2), float(acc.process_index))).mean())
        grad = acc.unwrap_model(copied).weight.grad
        assert torch.equal(grad, torch.full((1, 2), (acc.num_processes - 1) / 2))
    parts = copy.deepcopy(acc.prepare(nn.Sequential(nn.Linear(2, 2), nn.Tanh())))
    assert parts[1] is acc.unwrap_model(parts)[1]
    assert [*parts] == [parts[0], parts[1]]


def check_buffers_follow_the_main_process(acc):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model = acc.prepare(model)
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(acc.process_index))
    acc.backward(model(x).square().mean())
    mean = acc.unwrap_model(model)[1].running_mean
    assert mean.abs().sum() > 0
    assert torch.equal(broadcast(mean.clone()), mean)


def check_statistics_of_a_frozen_model_follow_too(acc):
    frozen = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    frozen, head = acc.prepare(frozen, nn.Linear(2, 1))
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(acc.process_index))
    acc.backward(head(frozen(x)).mean())
    mean = frozen[1].running_mean
    assert mean.abs().sum() > 0
    assert torch.equal(broadcast(mean.clone()), mean)
    frozen.eval()
    frozen[1].running_mean += acc.process_index  # nothing that training does
    acc.backward(head(frozen(x)).mean())
    assert len(set(acc.gather(frozen[1].running_mean[:1]).tolist())) == acc.num_processes


def check_no_sync(acc):
    model = nn.Linear(1, 1, bias=False)
    model = acc.prepare(model)
    weight = acc.unwrap_model(model).weight
    x = torch.full((1, 1), float(acc.process_index))
    mean = (acc.num_processes - 1) / 2
    with acc.no_sync(model):
        acc.backward(model(x).sum())
    assert weight.grad.item() == acc.process_index
    acc.backward(model(x).sum())
    assert weight.grad.item() == pytest.approx(2 * mean)
    weight.grad = None
    with acc.no_sync(model):
        loss = model(x).sum()
    with acc.trigger_sync_in_backward(model):
        acc.backward(loss)
    assert weight.grad.item() == pytest.approx(mean)


def check_communication_hook(_):
    for options in ({"comm_hook": "fp16"}, {"comm_hook": "power_sgd", "comm_wrapper": "fp16"}):
        acc = fresh_accelerator(kwargs_handlers=[DistributedDataParallelKwargs(**options)])
        model = acc.prepare(nn.Linear(2, 1))
        for _ in range(3):
            acc.backward(model(torch.full((1, 2), float(acc.process_index))).sum())
        grad = acc.unwrap_model(model).weight.grad
        assert grad.flatten().tolist() == pytest.approx([3 * (acc.num_processes - 1) / 2] * 2, rel=1e-2)
    with pytest.raises(ValueError, match="comm_hook must be one of"):
        fresh_accelerator(kwargs_handlers=[DistributedDataParallelKwargs(comm_hook="zip")]).prepare(
            nn.Linear(1, 1)
        )


def check_find_unused_parameters(_):
    acc = fresh_accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    model = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})

    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x, name):
            return self.parts[name](x)

    wrapped = acc.prepare(Either())
    for i in range(3):
        acc.backward(wrapped(torch.ones(1, 1), "ab"[(acc.process_index + i) % 2]).sum())
    for p in model.parameters():
        assert torch.equal(broadcast(p.grad.clone()), p.grad)
    assert not wrapped._flat


def check_local_sgd(acc):
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer = acc.prepare(model, optimizer)
    weight = acc.unwrap_model(model).weight
    begin = weight.item()
    with LocalSGD(acc, model, local_sgd_steps=2) as local:
        for i in range(2):
            optimizer.zero_grad()
            acc.backward(model(torch.full((1, 1), float(acc.process_index))).sum())
            optimizer.step()
            if i == 0:
                assert weight.item() == pytest.approx(begin - acc.process_index)
            local.step()
        assert weight.item() == pytest.approx(begin - (acc.num_processes - 1))


def check_batch_size_is_found_together(acc):
    @find_executable_batch_size(starting_batch_size=8, reduce_batch_size_fn=lambda n: n // 2)
    def train(batch_size):
        if acc.is_last_process and batch_size > 2:
            raise RuntimeError("CUDA out of memory")
        return batch_size

    assert train() == 2


def check_plateaus_are_the_same_everywhere(acc):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    optimizer, scheduler = acc.prepare(optimizer, scheduler)
    for epoch in range(3):
        # The main process's metric gets worse, the others' get better.
        scheduler.step(1.0 + epoch if acc.is_main_process else 1.0 - epoch)
    assert acc.gather(torch.tensor(scheduler.get_last_lr())).tolist() == [0.25] * acc.num_processes


def check_logger_in_order(acc):
    import logging

    seen = []
    logger = get_logger("in order")
    logger.logger.handlers = [logging.Handler()]
    logger.logger.handlers[0].emit = lambda record: seen.append(record.getMessage())
    logger.logger.setLevel("INFO")
    logger.info("main")
    logger.info("all", main_process_only=False)
    logger.info("turn", in_order=True)
    assert seen == (["main", "all", "turn"] if acc.is_main_process else ["all", "turn"])


def check_metrics_of_other_sizes(acc):
    """What does not have one entry a sample is gathered as it is, also where shares differ."""
    acc = fresh_accelerator(split_batches=True)
    loader = acc.prepare(DataLoader(TensorDataset(torch.arange(7)), batch_size=4))
    losses, numbers = [], []
    for (x,) in loader:
        a, b = acc.gather_for_metrics((x, x.float().mean()))
        numbers += a.tolist()
        losses.append(b.shape[0])
    assert numbers == list(range(7))
    assert losses == [acc.num_processes] * 2


def check_metrics_beside_texts(acc):
    """Lists of texts beside tensors are put together one by one, and the container keeps its form."""
    acc = fresh_accelerator(split_batches=False)
    rows = [{"number": n, "text": str(n)} for n in range(7)]
    loader = acc.prepare(DataLoader(rows, batch_size=2))
    numbers, texts = [], []
    for batch in loader:
        one, other = acc.gather_for_metrics((batch["number"], batch["text"]))
        numbers += one.tolist()
        texts += other
        assert acc.gather_for_metrics(batch)["text"] == other
    assert numbers == list(range(7))
    assert texts == [str(n) for n in numbers]


def check_draws_behind_a_pass_agree(acc):
    """In a shuffled pass the processes draw apart; what is drawn behind it is the same on all again."""
    acc = fresh_accelerator(split_batches=False)
    loader = acc.prepare(DataLoader(TensorDataset(torch.arange(12)), batch_size=2, shuffle=True))
    for _ in range(2):
        inside = torch.stack([torch.rand(3) for _ in loader])
        drawn = acc.gather(inside.unsqueeze(0))
        assert acc.num_processes == 1 or not torch.equal(drawn[0], drawn[-1])
        orders = acc.gather(torch.randperm(50).unsqueeze(0))
        assert torch.equal(orders[0], orders[-1])


def check_unequal_shapes_are_an_error(acc):
    with pytest.raises(RanksDisagreeError, match="rank 1: gather of float32"):
        acc.gather(torch.ones(acc.process_index + 1))


CHECKS = [function for name, function in sorted(globals().items()) if name.startswith("check_")]


def _run_all():
    for check in CHECKS:
        try:
            check(fresh_accelerator())
        except BaseException as error:
            error.add_note(f"in {check.__name__}")
            raise


@pytest.mark.parametrize("ranks", [2, 3])
def test_all(ranks):
    run_ranks(ranks, _run_all)


def train_and_leave():
    acc = fresh_accelerator()
    model = nn.Linear(4, 1)
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.ones(2, 4)
    acc.backward(model(x).sum())
    optimizer.step()
    acc.state.destroy_process_group()
    assert not torch.distributed.is_initialized()
    # What would end the group with the model, in C++ and so with every thread of Python at a stand.
    assert model.reducer is model.process_group is model.logger is None
    before = model(x)
    optimizer.zero_grad()
    acc.backward(before.sum())
    optimizer.step()
    return (before - model(x)).sum().item()


def test_a_model_outlives_the_group():
    first, second = run_ranks(2, train_and_leave)
    assert first == second == pytest.approx(2 * 0.1 * 2 * 5)
