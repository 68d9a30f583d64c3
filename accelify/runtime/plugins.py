"""What a script passes to `Accelerator(...)` to change its behaviour: small dataclasses, keyword by keyword."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from .sections import as_bool, without_prefix


class PrecisionType(enum.StrEnum):
    """Values of `mixed_precision`."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(enum.StrEnum):
    """Values in `rng_types`."""

    TORCH = "torch"
    CUDA = "cuda"
    NUMPY = "numpy"
    PYTHON = "python"
    GENERATOR = "generator"


class LoggerType(enum.StrEnum):
    """Values of `log_with`."""

    ALL = "all"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    MLFLOW = "mlflow"


class DDPCommunicationHookType(enum.StrEnum):
    """Values of DistributedDataParallelKwargs' `comm_hook` and `comm_wrapper`."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


@dataclass
class KwargsHandler:
    """Base of the classes whose fields are passed on to one torch object."""

    def to_dict(self) -> dict[str, Any]:
        return copy.deepcopy(self.__dict__)

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        default = type(self)()
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != getattr(default, f.name)}


@dataclass
class AutocastKwargs(KwargsHandler):
    """For `torch.autocast`. `enabled=False` runs a region in full precision."""

    enabled: bool = True
    cache_enabled: bool | None = None


@dataclass
class GradScalerKwargs(KwargsHandler):
    """For `torch.amp.GradScaler`, used with fp16. The defaults are torch's."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """For torch's DistributedDataParallel.

    `comm_hook` is "no", "fp16", "bf16", "power_sgd" or "batched_power_sgd"; `comm_wrapper` "no", "fp16" or "bf16"
    wraps it; `comm_state_option` are the arguments of PowerSGD's state.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: str = "no"
    comm_wrapper: str = "no"
    comm_state_option: dict[str, Any] = field(default_factory=dict)


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """For `torch.distributed.init_process_group`. `timeout` defaults to torch's."""

    backend: str | None = None
    init_method: str | None = None
    timeout: timedelta | None = None


@dataclass
class ProfileKwargs(KwargsHandler):
    """For `torch.profiler.profile`; `output_trace_dir` gets one Chrome trace a process."""

    activities: list[str] | None = None
    schedule_option: dict[str, int] | None = None
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """For `torch.compile`. `backend="no"` leaves models uncompiled.

    With `use_regional_compilation` each of the blocks that a model repeats is compiled, once for all of a class, and
    the rest runs as it is: a first step takes much less time.
    """

    backend: str = "no"
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    options: dict[str, Any] | None = None
    disable: bool = False
    use_regional_compilation: bool = False

    @classmethod
    def from_config(cls, section: Mapping[str, Any]) -> TorchDynamoPlugin:
        """The plugin for a `dynamo_config` section of a configuration file.

        Args:
            section: keys with or without "dynamo_" in front.

        Raises:
            ValueError: an unknown key, or a value that cannot be.
        """
        flags = ("use_fullgraph", "use_dynamic", "use_regional_compilation")
        values: dict[str, Any] = without_prefix(
            section, "dynamo_", ("backend", "mode", *flags), "dynamo_config"
        )
        for key in flags:
            if key in values:
                values[key] = as_bool(values[key], f"dynamo_{key}")
        found = {"fullgraph": "use_fullgraph", "dynamic": "use_dynamic"}
        given: dict[str, Any] = {name: values.pop(key) for name, key in found.items() if key in values}
        if str(values.get("mode", "")).lower() == "default":
            values.pop("mode")
        values["backend"] = str(values.get("backend", "no")).lower()
        return cls(**values, **given)

    def compile_arguments(self) -> dict[str, Any]:
        """For `torch.compile`."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "use_regional_compilation"}
        return {k: v for k, v in values.items() if v is not None}


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients are accumulated.

    Args:
        num_steps: batches per optimizer step.
        adjust_scheduler: a prepared scheduler advances once per optimizer step, not once per batch.
        sync_with_dataloader: the end of a loader ends the window.
        sync_each_batch: average gradients in every backward (less memory with some engines).
        scale_last_window: divide the last, shorter window of an epoch by its true size; False divides it by
            `num_steps` like a loop that accumulates by hand.
        reset_each_epoch: with `sync_with_dataloader=False`, count again with every pass of the loader and carry
            left-over gradients, as `(i + 1) % n == 0` does by hand.
        schedule_by_processes: a prepared scheduler advances by the number of processes with every optimizer step (by
            one with `split_batches`), as Accelerate's does, also where the step's last batches are missing or not
            full; False: as far as the original's after as many samples.
    """

    num_steps: int = 1
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False
    scale_last_window: bool = True
    reset_each_epoch: bool = False
    schedule_by_processes: bool = False

    def __post_init__(self) -> None:
        if int(self.num_steps) != self.num_steps or self.num_steps < 1:
            raise ValueError(
                f"gradient accumulation needs a whole number of steps of at least 1, not {self.num_steps!r}"
            )


@dataclass
class DataLoaderConfiguration:
    """How `prepare` treats data loaders.

    Args:
        split_batches: the script's batch size is that of all processes together.
        dispatch_batches: the main process reads and sends each rank its share; None: only if asked per loader.
        even_batches: every rank gets the same number of batches.
        use_seedable_sampler: replace a RandomSampler by SeedableRandomSampler.
        data_seed: seed of that sampler.
        non_blocking: copies to the device do not wait; those from pinned memory to a GPU never do.
        use_stateful_dataloader: for exchange with Accelerate; prepared loaders always have `state_dict`, and
            checkpoints their positions.
        replay_workers: a run resumed in the middle of an epoch lets a loader's workers load the first batches of the
            epoch again, so that what they draw for the rest is the same; False: leave those batches out unread.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False
    replay_workers: bool = True


@dataclass
class ProjectConfiguration:
    """Where checkpoints and logs go, and how many checkpoints remain."""

    project_dir: str | Path | None = None
    logging_dir: str | Path | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | Path | None = None) -> None:
        """Set the project's directory, and the logging directory where none was set."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir


PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
