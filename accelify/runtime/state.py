"""The process: its rank, its device, the group it belongs to.

The state classes are shared: every instance sees the same values. Tests start again with `_reset_state()`.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from . import tracebacks
from .gradient_state import GradientState as GradientState
from .gradient_state import WindowPosition as WindowPosition
from .rank_environment import find_rank, store_of_this_attempt, store_of_this_machine

if TYPE_CHECKING:
    from .backends.base import Backend

F = TypeVar("F", bound=Callable[..., Any])


class DistributedType(enum.StrEnum):
    """How the processes of a run work together."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    FSDP = "FSDP"
    TP = "TP"
    DEEPSPEED = "DEEPSPEED"
    XLA = "XLA"
    TPU = "XLA"  # an older name of the same
    # Never a run's here; scripts compare with them.
    MULTI_XPU = "MULTI_XPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"
    MEGATRON_LM = "MEGATRON_LM"


def _env_int(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None or text == "":
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name} must be a whole number, not {text!r}") from None


def _is_being_spawned() -> bool:
    """Whether this is the start of a process that multiprocessing spawns, which runs the main script's code again.

    multiprocessing marks it so for itself. Such a process has its parent's variables of rank and world and is none of
    the ranks: a loader's worker that joined them would wait for ever.
    """
    return getattr(multiprocessing.current_process(), "_inheriting", False)


def _ranks() -> int:
    """How many ranks the run has, by the process group where the script formed it, else by the launch."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return _env_int("WORLD_SIZE", 1)


def _pick_device(cpu: bool, local_rank: int, xla: Any = None) -> torch.device:
    from .backends import xla_device

    cpu = cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
    xla = xla or xla_device.launchers_plugin()
    if xla_device.asked_for(xla, cpu) and not _is_being_spawned():
        return xla_device.choose(xla)
    if cpu:
        return torch.device("cpu")
    if torch.cuda.is_available():
        if not local_rank and _ranks() == 1:
            # As scripts for one device name it, so that what they show and compare stays as it was.
            return torch.device("cuda")
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


# What a state has once it is made, and may be asked for before that or after it was reset.
_KNOWN = frozenset(
    "cpu device debug num_processes process_index local_process_index backend distributed_type is_beside "
    "mixed_precision engine".split()
)


class PartialState:
    """Rank, device and process control, without anything about training.

    Args:
        cpu: use the CPU even where there is an accelerator.
        backend, init_method, timeout: passed to `torch.distributed.init_process_group`.

    Under the environment variables of torchrun, or of srun with several tasks, the process group is formed here: NCCL
    on CUDA devices, else gloo. A worker that a rank's loader spawns runs the script's code again; it joins no group
    and takes no GPU.

    Raises:
        ValueError: an environment variable that should be a number is not, or `cpu=True` comes after an
            accelerator was already chosen.
    """

    _shared_state: dict[str, Any] = {}

    device: torch.device
    num_processes: int
    process_index: int
    local_process_index: int
    backend: str | None
    distributed_type: DistributedType
    debug: bool
    # Whether this is no rank but a process that one of them spawned.
    is_beside: bool

    def __init__(
        self,
        cpu: bool = False,
        *,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        self.__dict__ = self._shared_state
        if self.initialized:
            if cpu and self.device.type != "cpu":
                raise ValueError(
                    f"cpu=True comes too late: this process already works on {self.device}; pass cpu=True where "
                    "the first Accelerator or PartialState is made"
                )
            if kwargs.get("xla") is not None and self.device.type != "xla":
                raise ValueError(
                    f"XLAPlugin comes too late: this process already works on {self.device}; make the Accelerator "
                    "that asks for XLA first"
                )
            return
        tracebacks.shorten()
        find_rank()
        self.is_beside = _is_being_spawned()
        device = _pick_device(cpu, _env_int("LOCAL_RANK", _env_int("RANK", 0)), kwargs.get("xla"))
        world_size = _env_int("WORLD_SIZE", 1)
        if self.is_beside or not dist.is_available():
            world_size = 1
        elif not dist.is_initialized() and world_size > 1:
            if device.type == "mps":
                device = torch.device("cpu")
            backend = backend or ("nccl" if device.type == "cuda" else "gloo")
            arguments: dict[str, Any] = {"backend": backend, "init_method": init_method, "timeout": timeout}
            if init_method is None:
                arguments |= store_of_this_attempt() or store_of_this_machine(timeout)
            dist.init_process_group(**{k: v for k, v in arguments.items() if v is not None})
            if dist.get_backend() == "gloo":
                atexit.register(self._leave_at_exit)
        if device.type == "cuda" and device.index is not None and not self.is_beside:
            torch.cuda.set_device(device)
        self.cpu = cpu
        self.device = device
        self.debug = False
        if dist.is_available() and dist.is_initialized():
            self.num_processes = dist.get_world_size()
            self.process_index = dist.get_rank()
            self.local_process_index = _env_int("LOCAL_RANK", self.process_index)
            self.backend = dist.get_backend()
        else:
            self.num_processes, self.process_index, self.local_process_index = 1, 0, 0
            self.backend = None
            if self.is_beside:
                # What one rank does for all, its workers do as they did in the plain script.
                self.process_index, self.local_process_index = _env_int("RANK", 0), _env_int("LOCAL_RANK", 0)
        if self.num_processes > 1:
            from .guard import start

            start(self.process_index, self.num_processes, timeout)
        if self.num_processes == 1:
            self.distributed_type = DistributedType.NO
        elif device.type == "cuda":
            self.distributed_type = DistributedType.MULTI_GPU
        else:
            self.distributed_type = DistributedType.MULTI_CPU

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if name in _KNOWN:
            raise AttributeError(
                f"`{kind}` object has no attribute `{name}`. This happens if `{kind}._reset_state()` was called and an "
                "`Accelerator` or `PartialState` was not reinitialized."
            )
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"Distributed environment: {self.distributed_type}\nNum processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\nLocal process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )

    @classmethod
    def here(cls) -> PartialState:
        """What `PartialState()` gives, without making an object for each question: for what is asked in every step."""
        return _ONE if "device" in _ONE.__dict__ else PartialState()

    @staticmethod
    def _reset_state() -> None:
        """Forget everything, for tests. The process group, if any, stays."""
        PartialState._shared_state.clear()

    # Ranks that follow each other and work on the same batches (tensor parallel), and the group of those ranks that
    # have the same place among them, one for each batch; None: all ranks.
    ranks_per_batch: int = 1
    data_group: Any = None

    @property
    def group_holders(self) -> weakref.WeakSet[Any]:
        """What holds the process group from C++, and lets it go by `leave_group()` before it is destroyed.

        A holder that outlives the group would end it, and wait for its threads, while no thread can run Python: where
        one of them has a tensor to drop, that is for ever (https://github.com/pytorch/pytorch/issues/56297).
        """
        found: weakref.WeakSet[Any] = PartialState._shared_state.setdefault(
            "_group_holders", weakref.WeakSet()
        )
        return found

    def share_batches(self, ranks: int, group: Any) -> None:
        """Let every `ranks` ranks that follow each other work on the same batches.

        Args:
            ranks: how many.
            group: process group of this rank and those with its place among others.
        """
        self.ranks_per_batch = ranks
        self.data_group = group

    @property
    def data_ranks(self) -> int:
        """Among how many batches are sharded."""
        return self.num_processes // self.ranks_per_batch

    @property
    def data_rank(self) -> int:
        """Which of them are this rank's."""
        return 0 if self.is_beside else self.process_index // self.ranks_per_batch

    @property
    def initialized(self) -> bool:
        return "device" in self.__dict__

    @property
    def group_device(self) -> torch.device:
        """Where tensors must be for the process group to reach them: XLA's are where only XLA does."""
        return torch.device("cpu") if self.device.type == "xla" else self.device

    @property
    def use_distributed(self) -> bool:
        return self.num_processes > 1

    @property
    def is_main_process(self) -> bool:
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        return self.process_index == self.num_processes - 1

    @property
    def default_device(self) -> torch.device:
        return self.device if self.device.type == "xla" else _pick_device(False, 0)

    def wait_for_everyone(self) -> None:
        """Return when every process has come here."""
        if self.num_processes > 1:
            from .collectives import barrier

            barrier()

    @contextlib.contextmanager
    def _goes_first(self, first: bool) -> Iterator[None]:
        if not first:
            self.wait_for_everyone()
        try:
            yield
        finally:
            if first:
                self.wait_for_everyone()

    def main_process_first(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the main process runs before the others, such as for a download."""
        return self._goes_first(self.is_main_process)

    def local_main_process_first(self) -> contextlib.AbstractContextManager[None]:
        """A context in which each machine's first process runs before its others."""
        return self._goes_first(self.is_local_main_process)

    def _only(self, function: F, allowed: Callable[[PartialState], bool]) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if allowed(self) else None

        return run  # type: ignore[return-value]

    def on_main_process(self, function: F) -> F:
        """Decorator: run on the main process only; elsewhere the call returns None."""
        return self._only(function, lambda s: s.is_main_process)

    def on_local_main_process(self, function: F) -> F:
        """Decorator: run on each machine's first process only."""
        return self._only(function, lambda s: s.is_local_main_process)

    def on_last_process(self, function: F) -> F:
        """Decorator: run on the last process only."""
        return self._only(function, lambda s: s.is_last_process)

    def on_process(self, function: F | None = None, process_index: int | None = None) -> Any:
        """Decorator: run on the process of that rank only."""
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return self._only(function, lambda s: s.process_index == process_index)

    def on_local_process(self, function: F | None = None, local_process_index: int | None = None) -> Any:
        """Decorator: run on the process of that rank within its machine only."""
        if function is None:
            return functools.partial(self.on_local_process, local_process_index=local_process_index)
        return self._only(function, lambda s: s.local_process_index == local_process_index)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on the machine's main process only."""
        if self.is_local_main_process:
            print(*args, **kwargs)

    @contextlib.contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Give every process its contiguous share of a list, tuple, string, tensor, `datasets.Dataset`, or dict of
        them.

        Args:
            inputs: what to split; all values of a dict must have the same length.
            apply_padding: repeat the last item so that every share has the same length.

        Raises:
            ValueError: values of a dict differ in length.
        """
        yield _own_share(inputs, self.data_rank, self.data_ranks, apply_padding)

    def destroy_process_group(self) -> None:
        """Leave the process group."""
        if dist.is_available() and dist.is_initialized():
            from .guard import leave

            leave()
            for holder in list(self.group_holders):
                holder.leave_group()
            self.group_holders.clear()
            dist.destroy_process_group()

    def _leave_at_exit(self) -> None:
        """Let gloo's threads end while there is an interpreter.

        They drop the last work's tensors when they like, and the process aborts where that comes after Python's end.
        Where a work waits for a rank that will not come they do not end, so nobody waits for them long.
        """
        leaving = threading.Thread(target=self.destroy_process_group, daemon=True)
        leaving.start()
        leaving.join(timeout=1.0)


def _own_share(inputs: Any, rank: int, world: int, pad: bool) -> Any:
    if world == 1:
        return inputs
    if isinstance(inputs, dict):
        lengths = {len(v) for v in inputs.values()}
        if len(lengths) > 1:
            raise ValueError(
                f"split_between_processes: the values of the dict differ in length: {sorted(lengths)}"
            )
        return type(inputs)({k: _own_share(v, rank, world, pad) for k, v in inputs.items()})
    base, extra = divmod(len(inputs), world)
    start = rank * base + min(rank, extra)
    stop = start + base + (rank < extra)
    if hasattr(inputs, "select") and hasattr(inputs, "column_names"):
        # Slicing one of the datasets library gives its columns.
        last = [len(inputs) - 1] if pad and extra and rank >= extra and len(inputs) else []
        return inputs.select([*range(start, stop), *last])
    share = inputs[start:stop]
    if pad and extra and rank >= extra and len(inputs):
        if isinstance(inputs, torch.Tensor):
            return torch.cat([share, inputs[-1:]])
        share = share + inputs[-1:]
    return share


_ONE = PartialState.__new__(PartialState)
_ONE.__dict__ = PartialState._shared_state


class AcceleratorState(PartialState):
    """PartialState and what the Accelerator was asked for: precision and engine."""

    _shared_state: dict[str, Any] = {}

    engine: Backend
    mixed_precision: str
    # What the engine was asked for, None where another one trains.
    deepspeed_plugin: Any = None
    fsdp_plugin: Any = None

    def __init__(self, mixed_precision: str | None = None, cpu: bool = False, **kwargs: Any) -> None:
        process = PartialState(cpu, **kwargs)
        self.__dict__ = self._shared_state
        if "mixed_precision" in self.__dict__:
            if mixed_precision is not None and mixed_precision != self.mixed_precision:
                raise ValueError(
                    f"this process already has an Accelerator with mixed_precision={self.mixed_precision!r}; a second "
                    f"one cannot ask for {mixed_precision!r}"
                )
            return
        self.__dict__.update(process.__dict__)
        # What the script sets comes first, then the launcher's setting.
        self.mixed_precision = mixed_precision or os.environ.get("ACCELERATE_MIXED_PRECISION") or "no"

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forget everything, for tests."""
        AcceleratorState._shared_state.clear()
        if reset_partial_state:
            PartialState._reset_state()
