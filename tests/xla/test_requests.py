"""Asking for XLA devices: what is chosen, and what is refused with a sentence."""

import json
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelify.runtime import PartialState, TorchDynamoPlugin
from accelify.runtime.backends.xla_plugin import XLAPlugin
from tests.distributed.processes import fresh_accelerator, try_ranks
from tests.runtime.training import make_data
from tests.xla.devices import NEEDS_XLA, accelerator, environment, error_on_devices, on_devices, on_replicas

pytestmark = NEEDS_XLA


def _chosen(arguments):
    import torch_xla.runtime as xr

    acc = fresh_accelerator(**{"cpu": False, **arguments})
    in_use = acc.device.type == "xla"
    return (
        str(acc.distributed_type),
        in_use and xr.is_spmd(),
        xr.global_runtime_device_count() if in_use else 0,
    )


@pytest.mark.parametrize(
    ("devices", "arguments", "env", "chosen"),
    [
        (2, {}, {}, ("XLA", True, 2)),
        (2, {"xla_plugin": XLAPlugin(spmd=False)}, {}, ("XLA", False, 2)),
        (2, {}, {"ACCELIFY_ENGINE": json.dumps({"xla": {"spmd": False}})}, ("XLA", False, 2)),
        (1, {}, {"ACCELIFY_ENGINE": json.dumps({"xla": {"spmd": True, "num_devices": 1}})}, ("XLA", True, 1)),
        # The device is the CPU either way.
        (1, {"cpu": True}, {"ACCELIFY_ENGINE": json.dumps({"xla": {}})}, ("XLA", False, 1)),
        # PJRT_DEVICE says that devices are there, not that they must be used.
        (1, {"cpu": True}, {}, ("NO", False, 0)),
        (1, {"xla_plugin": XLAPlugin()}, {}, ("XLA", False, 1)),
    ],
)
def test_what_is_chosen(devices, arguments, env, chosen):
    assert on_devices(devices, _chosen, arguments, env=env) == chosen


@pytest.mark.parametrize(
    ("devices", "arguments", "sentence"),
    [
        (
            1,
            {"mixed_precision": "fp16"},
            'XLA devices train in bf16, which needs no loss scaling: mixed_precision="bf16"',
        ),
        (1, {"dynamo_plugin": TorchDynamoPlugin(backend="inductor")}, "use \"openxla\", not 'inductor'"),
        (
            2,
            {"dynamo_plugin": TorchDynamoPlugin(backend="openxla")},
            "and SPMD do not go together",
        ),
        (
            2,
            {"xla_plugin": XLAPlugin(num_devices=4)},
            "num_devices=4 was asked for, and here are 2 XLA devices",
        ),
    ],
)
def test_what_is_refused(devices, arguments, sentence):
    told = error_on_devices(devices, _chosen, arguments)
    assert told.startswith("ValueError: ")
    assert sentence in told


def _too_late():
    PartialState(cpu=True)
    from accelify.runtime import Accelerator

    Accelerator(xla_plugin=XLAPlugin())


def _lazy():
    accelerator().prepare(nn.LazyLinear(2))


def test_what_comes_at_the_wrong_time():
    assert "XLAPlugin comes too late: this process already works on cpu" in error_on_devices(1, _too_late)
    assert "a lazy module has no weights yet" in error_on_devices(1, _lazy)


def _replicas_refuse():
    told = []
    acc = accelerator()
    with pytest.raises(ValueError, match="not for XLA replicas"):
        acc.join_uneven_inputs([]).__enter__()
    told.append(acc.num_processes)
    return told


def test_replicas_refuse():
    assert on_replicas(2, _replicas_refuse) == [[2], [2]]
    outcomes = try_ranks(2, _chosen, {"xla_plugin": XLAPlugin(spmd=True)}, env=environment(1))
    assert all("SPMD is one process for all devices, and here are 2 processes" in o.error for o in outcomes)


# Replicas of torch_xla.launch: on the CPU they are threads, which do not agree on a program that both compile at the
# same time. So one replica comes after the other, and only what needs no Accelerator is run for real.

_turns = [threading.Event(), threading.Event()]


def _average_and_share(index, path):
    import torch_xla
    import torch_xla.runtime as xr

    from accelify.runtime.backends.xla import average, share

    def in_turn(number):
        if index:
            _turns[number].wait(60)
        torch_xla.sync()
        _turns[number].set()

    device = torch_xla.device()
    gradients = [
        torch.full((3,), index + 1.0, device=device),
        torch.full((2, 2), index * 10.0, device=device),
    ]
    torch_xla.sync(wait=True)
    average(gradients, xr.world_size())
    in_turn(0)
    found = [g.cpu().flatten().tolist() for g in gradients]
    buffers = [torch.full((2,), index + 5.0, device=device)]
    torch_xla.sync(wait=True)
    share(buffers, xr.world_size())
    in_turn(1)
    (path / str(index)).write_text(json.dumps([xr.world_size(), found, buffers[0].cpu().tolist()]))


def _launch_averaging(path):
    import torch_xla

    torch_xla.launch(_average_and_share, args=(path,), start_method="fork")


def test_replicas_that_xla_connects_average_on_the_devices(tmp_path):
    on_devices(2, _launch_averaging, tmp_path)
    for index in range(2):
        found = json.loads((tmp_path / str(index)).read_text())
        assert found == [2, [[1.5] * 3, [5.0] * 4], [5.0] * 2]


def _threads(index):
    accelerator()


def _launch_accelerators():
    import torch_xla

    torch_xla.launch(_threads, start_method="fork")


def test_replicas_in_threads_are_refused():
    assert "torch_xla.launch runs 2 replicas as threads" in error_on_devices(2, _launch_accelerators)


def _launched(rank, port):
    """A replica as torch_xla.launch starts it on a TPU: only XLA's runtime knows of the others."""
    import os

    import torch_xla.runtime as xr

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
    os.environ["MASTER_PORT"] = port
    known = {
        "world_size": 2,
        "global_ordinal": rank,
        "local_ordinal": rank,
        "process_count": 2,
        "local_process_count": 2,
    }
    for name, value in known.items():
        setattr(xr, name, lambda value=value: value)
    acc = accelerator()
    return (
        acc.process_index,
        acc.num_processes,
        acc.local_process_index,
        acc.gather(torch.tensor([rank])).tolist(),
    )


def _launched_here(port):
    import os

    return _launched(int(os.environ["RANK"]), port)


def test_launched_replicas_find_each_other():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    found = on_replicas(2, _launched_here, port)
    assert found == [(0, 2, 0, [0, 1]), (1, 2, 1, [0, 1])]


def _hold_sync():
    """Gradients of two replicas inside and outside of no_sync, and of a model that is averaged all the same."""
    acc = accelerator()
    model = acc.prepare(nn.Linear(1, 1, bias=False))
    x = torch.full((1, 1), float(acc.process_index + 1), device=acc.device)
    found = []
    with acc.no_sync(model):
        acc.backward(model(x).sum())
        found.append(model.weight.grad.item())
        with acc.trigger_sync_in_backward(model):
            acc.backward(model(x).sum())
        found.append(model.weight.grad.item())
    norms = nn.BatchNorm1d(1)
    norms = acc.prepare(norms)
    acc.backward(norms(torch.full((2, 1), float(acc.process_index), device=acc.device)).sum())
    found.append(norms.running_mean.item())
    return found


def test_replicas_hold_back_what_no_sync_says():
    first, second = on_replicas(2, _hold_sync)
    assert first == [1.0, 3.0, 0.0]
    assert second == [2.0, 3.0, 0.0]


def _many_loaders():
    acc = accelerator()
    train, test = acc.prepare(DataLoader(make_data(8), batch_size=4), DataLoader(make_data(4), batch_size=4))
    seen = 0
    for _ in train:
        for _ in test:
            seen += 1
    return seen, acc.gradient_state.in_dataloader


def test_loaders_in_loaders():
    assert on_devices(1, _many_loaders) == (2, False)
