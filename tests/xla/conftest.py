"""Every test runs in a process of its own, forked from a server that has imported torch_xla but opened no device: how
many devices there are is settled once a process, and counts of compilations begin at nothing."""

import os

from tests.distributed import processes
from tests.xla.devices import INSTALLED

if INSTALLED:
    # Importing torch_xla must not choose a device for the processes to come.
    os.environ.setdefault("PJRT_SELECT_DEFAULT_DEVICE", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    processes._CONTEXT.set_forkserver_preload(
        [
            "torch",
            "torch._dynamo",
            "torch_xla",
            "torch_xla.distributed.spmd",
            "accelify.runtime.accelerator",
            "tests.distributed.frozen",
        ]
    )
