"""Finding XLA devices, and what moves between them and the host. torch_xla is imported only where XLA is asked for."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from accelify.installing import install_command

if TYPE_CHECKING:
    from .xla_plugin import XLAPlugin

_YES = ("1", "true", "yes")


def asked_for(plugin: XLAPlugin | None, cpu: bool) -> bool:
    """Whether this run is for XLA devices.

    The script's plugin and the launcher's section ask outright; PJRT_DEVICE in the environment says that they are
    there, as a CUDA device is there, and `cpu=True` comes before it.

    Raises:
        ValueError: the CPU and XLA are both asked for outright, and XLA's devices are not the CPU.
    """
    if plugin is not None and cpu and os.environ.get("PJRT_DEVICE") != "CPU":
        raise ValueError(
            "the CPU (cpu=True or ACCELERATE_USE_CPU) and XLA are both asked for: leave one out; XLA itself runs on "
            "the CPU with PJRT_DEVICE=CPU"
        )
    return plugin is not None or (not cpu and bool(os.environ.get("PJRT_DEVICE")))


def launchers_plugin() -> XLAPlugin | None:
    """The launcher's setting for XLA; None where there is none."""
    if '"xla"' not in os.environ.get("ACCELIFY_ENGINE", ""):
        return None
    from ..arguments import engine_options

    return engine_options({}).get("xla")


def choose(plugin: XLAPlugin | None) -> torch.device:
    """The XLA device of this process, after deciding how many devices it drives.

    With SPMD that is one virtual device for all of them. Replicas that `torch_xla.launch` started get torchrun's
    variables, so that they find each other as torchrun's processes do.

    Raises:
        ImportError: torch_xla is missing.
        ValueError: the available devices are not those asked for.
    """
    asked = plugin.num_devices if plugin is not None else None
    started = int(os.environ.get("WORLD_SIZE") or 1)
    if asked is not None and started == 1 and os.environ.get("PJRT_DEVICE") == "CPU":
        os.environ.setdefault("CPU_NUM_DEVICES", str(asked))
    xr = _runtime()
    if plugin is not None and plugin.cache_dir is not None:
        xr.initialize_cache(str(plugin.cache_dir))
    _bind_to_chip(xr)
    import torch_xla

    seen = int(xr.addressable_runtime_device_count())
    replicas = max(started, int(xr.world_size()))
    if asked is not None and asked not in (seen, replicas):
        raise ValueError(
            f"num_devices={asked} was asked for, and here are {max(seen, replicas)} XLA devices: set num_devices to "
            "that, or CPU_NUM_DEVICES with PJRT_DEVICE=CPU"
        )
    wanted = plugin.spmd if plugin is not None else None
    if replicas > 1:
        _check_replicas(replicas, wanted, seen, xr)
    elif not xr.is_spmd() and (seen > 1 if wanted is None else wanted):
        xr.use_spmd()
    if xr.is_spmd() and int(xr.process_count()) > 1:
        raise ValueError(
            f"SPMD spreads a batch over the devices of one machine, and here are {xr.process_count()}: start one "
            "process a chip with torch_xla.launch, or with torchrun"
        )
    return torch_xla.device()  # type: ignore[no-any-return]


def _runtime() -> Any:
    # Else the compiler warns at every compilation that its partitioner will be replaced one day.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import torch_xla.runtime as xr
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("torch_xla")
        why = "torch_xla is not installed" if missing else f"torch_xla does not load ({_first_line(error)})"
        raise ImportError(
            f"XLA devices are asked for (PJRT_DEVICE, XLAPlugin or the launcher) and {why}: {install_command('tpu')}"
        ) from None
    return xr


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _bind_to_chip(xr: Any) -> None:
    """Under torchrun on TPUs, let each process see its chip, as torch_xla's process group does."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    if ranks > 1 and xr.device_type() != "CPU":
        from torch_xla._internal import pjrt

        pjrt.initialize_multiprocess(int(os.environ["LOCAL_RANK"]), ranks)


def _check_replicas(replicas: int, spmd: bool | None, seen: int, xr: Any) -> None:
    if spmd or xr.is_spmd():
        raise ValueError(
            f"SPMD is one process for all devices, and here are {replicas} processes: leave out spmd, or start one"
        )
    launched = int(xr.world_size())
    if launched > 1 and seen > 1:
        raise ValueError(
            f"torch_xla.launch runs {seen} replicas as threads of one process here (PJRT_DEVICE={xr.device_type()}); "
            "start one process and let SPMD drive all devices"
        )
    if "WORLD_SIZE" not in os.environ:
        for name, value in _addresses(xr).items():
            os.environ.setdefault(name, value)
    elif launched not in (1, replicas) or (launched == 1 and xr.device_type() != "CPU"):
        raise ValueError(
            f"{replicas} processes were started, and XLA's runtime connects {launched}: start them with "
            "torch_xla.launch"
        )


def _addresses(xr: Any) -> dict[str, str]:
    """torchrun's variables for a replica of `torch_xla.launch`."""
    one_machine = int(xr.process_count()) == int(xr.local_process_count())
    return {
        "RANK": str(xr.global_ordinal()),
        "WORLD_SIZE": str(xr.world_size()),
        "LOCAL_RANK": str(xr.local_ordinal()),
        "LOCAL_WORLD_SIZE": str(xr.local_process_count()),
        "MASTER_ADDR": "127.0.0.1" if one_machine else str(xr.get_master_ip()),
        "MASTER_PORT": "12355",
    }


# Between host and device


def on_device(item: Any) -> bool:
    """Whether `item` is a tensor on an XLA device."""
    return isinstance(item, torch.Tensor) and item.device.type == "xla"


def same_tensor_key(tensor: torch.Tensor) -> int:
    """Equal for names of one tensor, tied weights and their detached copies too."""
    import torch_xla

    return int(torch_xla._XLAC._xla_get_tensor_id(tensor))


def to_host(item: Any) -> Any:
    """A copy of a nested container, or module, whose XLA tensors are on the CPU; what shares one goes on sharing it.

    Without any XLA tensor in it, `item` itself comes back.
    """
    found: dict[int, torch.Tensor] = {}
    _collect(item, found)
    if not found:
        return item
    import torch_xla

    firsts: dict[int, torch.Tensor] = {}
    for tensor in found.values():
        firsts.setdefault(same_tensor_key(tensor), tensor)
    moved = torch_xla._XLAC._xla_get_cpu_tensors([t.detach() for t in firsts.values()])
    hosts = dict(zip(firsts, moved, strict=True))
    memo: dict[int, Any] = {}
    for key, tensor in found.items():
        host = hosts[same_tensor_key(tensor)]
        if isinstance(tensor, torch.nn.Parameter):
            host = torch.nn.Parameter(host, tensor.requires_grad)
        memo[key] = host
    return _rebuilt(item, memo)


def _collect(item: Any, found: dict[int, torch.Tensor]) -> None:
    if on_device(item):
        found[id(item)] = item
    elif isinstance(item, torch.nn.Module):
        _collect([*item.parameters(), *item.buffers()], found)
    elif isinstance(item, Mapping):
        _collect(list(item.values()), found)
    elif isinstance(item, (list, tuple, set, frozenset)):
        for part in item:
            _collect(part, found)


def _rebuilt(item: Any, hosts: dict[int, Any]) -> Any:
    if isinstance(item, torch.Tensor):
        return hosts.get(id(item), item)
    if isinstance(item, torch.nn.Module):
        return copy.deepcopy(item, dict(hosts))
    if isinstance(item, Mapping):
        # A shallow copy keeps what a state dict carries besides its entries.
        copied: Any = copy.copy(item)
        for name, value in item.items():
            copied[name] = _rebuilt(value, hosts)
        return copied
    if isinstance(item, (list, tuple, set, frozenset)):
        parts = [_rebuilt(part, hosts) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return item


# Random numbers


def random_state() -> int | None:
    """The state of the device's generator; None in a process without XLA."""
    if not in_use():
        return None
    import torch_xla.core.xla_model as xm

    return int(xm.get_rng_state())


def set_random_state(state: int) -> None:
    """Set what `random_state` gave, in a process with XLA; elsewhere nothing."""
    if in_use():
        import torch_xla.core.xla_model as xm

        xm.set_rng_state(state)


def seed(number: int) -> None:
    """Seed the device's generator, in a process with XLA; torch's `manual_seed` leaves it out."""
    if in_use():
        import torch_xla

        torch_xla.manual_seed(number % 2**63)


def in_use() -> bool:
    """Whether this process has an XLA device open."""
    module = sys.modules.get("torch_xla")
    return module is not None and bool(module._XLAC._xla_runtime_is_initialized())


def fetch(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the CPU of several tensors, in one go."""
    import torch_xla

    return list(torch_xla._XLAC._xla_get_cpu_tensors([t.detach() for t in tensors]))
