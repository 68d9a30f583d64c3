"""Runs a function in a fresh process that has so many XLA devices on the CPU, or in several that have one each."""

import importlib.util

import pytest

from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

INSTALLED = importlib.util.find_spec("torch_xla") is not None
# For every module here.
NEEDS_XLA = [
    pytest.mark.distributed,
    pytest.mark.skipif(not INSTALLED, reason="torch_xla is not installed: pip install '.[tpu]'"),
]


def on_devices(devices, function, *args, env=None):
    """`function(*args)` in a process that sees `devices` XLA devices; more than one are driven by SPMD."""
    return run_ranks(1, function, *args, env=environment(devices) | (env or {}))[0]


def on_replicas(ranks, function, *args):
    """`[function(*args) on replica r for r in range(ranks)]`, each with a device of its own."""
    return run_ranks(ranks, function, *args, env=environment(1))


def error_on_devices(devices, function, *args, env=None):
    """The last line of the error that `function(*args)` ends with."""
    outcome = try_ranks(1, function, *args, env=environment(devices) | (env or {}))[0]
    assert outcome.error is not None, f"no error, but {outcome.value!r}"
    return outcome.error.strip().splitlines()[-1]


def environment(devices):
    return {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)}


def accelerator(**kwargs):
    return fresh_accelerator(cpu=False, **kwargs)


def compilations():
    import torch_xla.debug.metrics as metrics

    data = metrics.metric_data("CompileTime")
    return data[0] if data else 0
