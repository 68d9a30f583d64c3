"""The contract that every engine keeps, on XLA devices."""

import pytest

from accelify.runtime import DistributedType
from accelify.runtime.backends.xla import XLABackend
from tests.distributed.test_backend_contract import _keep_contract
from tests.xla.devices import NEEDS_XLA, accelerator, on_devices, on_replicas

pytestmark = NEEDS_XLA


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_contract(devices):
    on_devices(devices, _keep_contract, XLABackend, {"cpu": False})


def test_contract_on_replicas():
    on_replicas(2, _keep_contract, XLABackend, {"cpu": False})


def _what_it_is():
    import torch_xla.runtime as xr

    acc = accelerator()
    return acc.distributed_type, acc.device.type, acc.num_processes, xr.is_spmd()


def test_what_a_run_is():
    assert on_devices(1, _what_it_is) == (DistributedType.TPU, "xla", 1, False)
    assert on_devices(4, _what_it_is) == (DistributedType.TPU, "xla", 1, True)
    assert on_replicas(2, _what_it_is) == [(DistributedType.TPU, "xla", 2, False)] * 2
