"""The facade that scripts talk to. It delegates: processes to state, engines to backends, loaders to data."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from . import files
from .arguments import engine_options, engine_precision, is_scheduler, not_split, refuse_flags, sort_handlers
from .backends import make_backend
from .backends.base import Backend
from .backends.wrapped import walkable
from .backends.xla_plugin import XLAPlugin
from .data.loaders import DataLoaderShard
from .data.preparing import prepare_data_loader
from .data.random_state import share_random_state
from .optimizer import AcceleratedOptimizer, follow_parameters, inner_optimizers, trains_some, trains_the_same
from .overruled import warn_where_overruled
from .plugins import (
    DataLoaderConfiguration,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProjectConfiguration,
    TorchDynamoPlugin,
)
from .precision import Precision
from .saving import Saving
from .scheduler import AcceleratedScheduler
from .state import AcceleratorState, GradientState, PartialState
from .tracking import Tracking
from .training_step import TrainingStep
from .weak_list import WeakList


class Accelerator(TrainingStep, Saving, Tracking):
    """Makes a training loop run on the devices that are there, with the numbers of the loop on one.

    Args:
        device_placement: models and batches are moved to the device.
        split_batches: the script's batch size is that of all processes together; False: of each; None: as
            `dataloader_config` has it, which is of each where it says nothing.
        mixed_precision: "no", "fp16" or "bf16".
        gradient_accumulation_steps: batches per optimizer step.
        cpu: run on the CPU even where there is an accelerator.
        dataloader_config: a DataLoaderConfiguration.
        gradient_accumulation_plugin: a GradientAccumulationPlugin, in place of the number of steps.
        rng_types: generators to synchronise before every pass of a loader, besides what the order needs.
        log_with, project_dir, project_config: trackers, and where checkpoints and logs go.
        step_scheduler_with_optimizer: False: prepared schedulers advance once a call, whatever the optimizer does.
        kwargs_handlers: further arguments for torch's classes, such as DistributedDataParallelKwargs.
        dynamo_backend, dynamo_plugin: compile models.
        fsdp_plugin: a FullyShardedDataParallelPlugin, shards models over the ranks (FSDP2).
        parallelism_config, torch_tp_plugin: a ParallelismConfig, divides layers between ranks, or makes replicas of a
            sharded model.
        xla_plugin: run on XLA devices (TPUs), with these options.
        flags: none is known; of Accelerate's old ones, such as `fp16=True`, the error names the argument of today.

    Raises:
        ValueError: for an argument with a value that is not possible, or two that exclude each other.
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        rng_types: list[Any] | None = None,
        log_with: Any = None,
        project_dir: str | Path | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: list[KwargsHandler] | None = None,
        dynamo_backend: str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugins: Any = None,
        parallelism_config: Any = None,
        xla_plugin: XLAPlugin | None = None,
        **flags: Any,
    ) -> None:
        refuse_flags(flags)
        if megatron_lm_plugin is not None:
            raise ValueError(
                "Accelerator(megatron_lm_plugin=...): accelify has no Megatron-LM engine; use fsdp_plugin"
            )
        if dynamo_plugin is None and dynamo_backend is not None:
            dynamo_plugin = TorchDynamoPlugin(backend=str(dynamo_backend).lower())
        options = sort_handlers(kwargs_handlers or []) | engine_options(
            {
                "deepspeed": deepspeed_plugin or deepspeed_plugins,
                "fsdp": fsdp_plugin,
                "parallelism": parallelism_config or torch_tp_plugin,
                "xla": xla_plugin,
                "dynamo": dynamo_plugin,
            }
        )
        group = options.get("process_group", InitProcessGroupKwargs())
        self.state = AcceleratorState(
            mixed_precision or engine_precision(options),
            cpu,
            backend=group.backend,
            init_method=group.init_method,
            timeout=group.timeout,
            xla=options.get("xla"),
        )
        self.process = PartialState()
        warn_where_overruled("mixed_precision", mixed_precision)
        self.device_placement = device_placement
        if gradient_accumulation_plugin is not None and gradient_accumulation_steps != 1:
            raise ValueError("give gradient_accumulation_steps or gradient_accumulation_plugin, not both")
        of_script = gradient_accumulation_plugin is not None or gradient_accumulation_steps != 1
        if not of_script:
            # The launcher's option, for a script that sets none.
            gradient_accumulation_steps = int(os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS") or 1)
        plugin = gradient_accumulation_plugin or GradientAccumulationPlugin(gradient_accumulation_steps)
        warn_where_overruled("gradient_accumulation_steps", plugin.num_steps if of_script else None)
        self.gradient_state = GradientState(plugin)
        self.gradient_state.steps_of_launch = not of_script
        self.dataloader_config = dataloader_config or DataLoaderConfiguration()
        if split_batches is not None:
            self.dataloader_config.split_batches = split_batches
        self.rng_types = rng_types
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.project_configuration = project_config or ProjectConfiguration(project_dir=project_dir)
        if project_dir is not None and self.project_configuration.project_dir is None:
            self.project_configuration.set_directories(project_dir)
        self.dynamo = options.get("dynamo") or TorchDynamoPlugin()
        self.precision = Precision(
            self.state.mixed_precision, self.process.device, options.get("autocast"), options.get("scaler")
        )
        self.profile_handler = options.get("profile")
        self.backend = make_backend(self.process, self.precision, options)
        self.state.distributed_type = self.backend.distributed_type
        self.state.deepspeed_plugin = (
            getattr(self.backend, "plugin", None) if "deepspeed" in options else None
        )
        self.state.fsdp_plugin = options.get("fsdp")
        self._models: list[torch.nn.Module] = []
        self._optimizers: WeakList[AcceleratedOptimizer] = WeakList()
        self._modelless: list[torch.optim.Optimizer] = []
        self._schedulers: WeakList[AcceleratedScheduler] = WeakList()
        # By the script's loader, and weakly: a loader that is made again every epoch is freed with its data.
        self._loaders: weakref.WeakValueDictionary[int, DataLoaderShard] = weakref.WeakValueDictionary()
        # What was prepared, by the identity of the original; a reference to the original keeps the identity unique.
        self._prepared: dict[int, tuple[Any, Any]] = {}
        self._tokens = 0.0
        self._begin_saving()
        self._begin_tracking(log_with)
        # Nothing but torch's backward is left to do in this case, on every step.
        self._plain = self.backend.plain and self.precision.scaler is None and plugin.num_steps == 1
        if self.num_processes > 1:
            share_random_state()

    # What this run is

    @property
    def mixed_precision(self) -> str:
        return self.state.mixed_precision

    @property
    def split_batches(self) -> bool:
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        return self.dataloader_config.dispatch_batches

    @property
    def use_seedable_sampler(self) -> bool:
        return self.dataloader_config.use_seedable_sampler

    @property
    def use_stateful_dataloader(self) -> bool:
        return self.dataloader_config.use_stateful_dataloader

    @property
    def non_blocking(self) -> bool:
        return self.dataloader_config.non_blocking

    @property
    def even_batches(self) -> bool:
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        self.dataloader_config.even_batches = value

    @property
    def gradient_accumulation_steps(self) -> int:
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: int) -> None:
        self.gradient_state.plugin.num_steps = value
        self.gradient_state.steps_of_launch = False
        self._plain = self.backend.plain and self.precision.scaler is None and value == 1

    @property
    def sync_gradients(self) -> bool:
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self.gradient_state.sync_gradients = value

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """The gradient scaler; a disabled one where nothing is scaled, so that its state can be saved anyway."""
        return self.precision.scaler or torch.amp.GradScaler(self.device.type, enabled=False)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether any optimizer's last step was left out because gradients in fp16 overflowed."""
        return any(o.step_was_skipped for o in self._optimizers)

    # Preparing

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Wrap models, optimizers, loaders and schedulers for this run; returns them in the order of the arguments.

        Args:
            *args: the objects, in any order, together or in several calls. Of one that is used as an optimizer the
                optimizers that it keeps are prepared in their places; anything else is returned as it is.
            device_placement: for each object, whether it may be moved to the device.

        Raises:
            ValueError: an optimizer whose parameters are none of the prepared models'.
            AttributeError: the state that this Accelerator was made with has been reset since.
        """
        _ = self.state.distributed_type
        placement = device_placement or [self.device_placement] * len(args)
        if len(placement) != len(args):
            raise ValueError(
                f"device_placement needs one entry for each of the {len(args)} objects, not {len(placement)}"
            )
        done: dict[int, Any] = {}
        for kinds in (torch.nn.Module, DataLoader, torch.optim.Optimizer, object):
            for i, (item, place) in enumerate(zip(args, placement, strict=True)):
                if i not in done and isinstance(item, kinds):
                    done[i] = self._prepare_one(item, place)
        result = tuple(done[i] for i in range(len(args)))
        return result[0] if len(result) == 1 else result

    def _prepare_one(self, item: Any, place: bool) -> Any:
        if isinstance(item, torch.nn.Module):
            return self.prepare_model(item, place)
        if isinstance(item, DataLoader):
            return self.prepare_data_loader(item, place)
        if isinstance(item, torch.optim.Optimizer):
            return self.prepare_optimizer(item, place)
        if isinstance(item, AcceleratedScheduler) or is_scheduler(item):
            return self.prepare_scheduler(item)
        for name, inner in inner_optimizers(item, self._models, self.backend):
            setattr(item, name, self.prepare_optimizer(inner))
        return item

    def _remembered(self, item: Any) -> Any:
        return self._prepared.get(id(item), (None, None))[1]

    def _remember(self, item: Any, prepared: Any) -> Any:
        self._prepared[id(item)] = (item, prepared)
        if prepared is not item:
            self._prepared[id(prepared)] = (prepared, prepared)
        return prepared

    def prepare_model(
        self, model: torch.nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> torch.nn.Module:
        """Place a model and wrap it for the engine.

        Args:
            model: the script's. With one process the same object comes back.
            device_placement: whether it may be moved; default: as set on the Accelerator.
            evaluation_mode: it will not be trained: no engine wraps it.
        """
        with walkable(model):
            return self._prepare_model(model, device_placement, evaluation_mode)

    def _prepare_model(
        self, model: torch.nn.Module, device_placement: bool | None, evaluation_mode: bool
    ) -> torch.nn.Module:
        known = self._remembered(not_split(model, self.num_processes, self.device))
        if self.device_placement if device_placement is None else device_placement:
            self.backend.place(model if known is None else known)  # which may be on the host by now
        if known is not None:
            return known  # type: ignore[no-any-return]
        wrapped = self.backend.wrap(model, evaluation_mode)
        if self.dynamo.backend != "no":
            wrapped = self.backend.compile(wrapped, self.dynamo)
        self._models.append(wrapped)
        for optimizer in self._optimizers:
            self.backend.adopt(optimizer.optimizer)
            follow_parameters(optimizer.optimizer)
        return self._remember(model, wrapped)  # type: ignore[no-any-return]

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> DataLoaderShard:
        """Make a loader give each rank its share, on the rank's device."""
        if isinstance(data_loader, DataLoaderShard):
            return data_loader
        known = self._loaders.get(id(data_loader))
        if known is not None:
            return known
        config = self.dataloader_config
        prepared = prepare_data_loader(
            data_loader,
            self.device,
            split_batches=config.split_batches,
            put_on_device=self.device_placement if device_placement is None else device_placement,
            rng_types=self.rng_types,
            dispatch_batches=config.dispatch_batches,
            even_batches=config.even_batches,
            use_seedable_sampler=config.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=config.non_blocking,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
        )
        prepared.replay_workers = config.replay_workers
        if type(self.backend).place_batch is not Backend.place_batch:
            prepared.layout = self.backend.place_batch
        self.backend.adopt_loader(prepared)
        self.backend.note_loader(prepared.total_batch_size)
        self._loaders[id(data_loader)] = prepared
        self._take_position(prepared)
        return prepared

    def prepare_optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """Make an optimizer step with complete gradients only.

        Raises:
            ValueError: none of its parameters belongs to a prepared model.
        """
        if isinstance(optimizer, AcceleratedOptimizer):
            return optimizer
        for known in self._optimizers:
            if known.optimizer is optimizer:
                return known
        self.backend.adopt(optimizer)
        follow_parameters(optimizer)
        self._check_parameters(optimizer)
        prepared = AcceleratedOptimizer(optimizer, self.precision, self.backend)
        self._schedulers.release(lambda s: any(trains_the_same(o, prepared) for o in s.optimizers))
        self._optimizers.release(lambda o: trains_the_same(o, prepared))
        self._optimizers.append(prepared)
        return prepared

    def _check_parameters(self, optimizer: torch.optim.Optimizer) -> None:
        own = {id(p) for m in self._models for p in torch.nn.Module.parameters(m)}
        stepped = self.backend.parameters_of(optimizer)
        loose = [p for p in stepped if id(p) not in own]
        if own:
            models = [self.unwrap_model(m) for m in self._models]
            trains_some(optimizer, len(stepped), len(loose), models, any(True for _ in self._optimizers))
        if own and loose:
            self.backend.add_parameters(loose)
        elif stepped and not own:
            self._modelless.append(optimizer)

    def prepare_scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """Make a learning rate scheduler follow the original's schedule."""
        if isinstance(scheduler, AcceleratedScheduler):
            return scheduler
        for known in self._schedulers:
            if known.scheduler is scheduler:
                return known
        wrapped = getattr(scheduler, "optimizer", None)
        own = [o for o in self._optimizers if wrapped is o or wrapped is o.optimizer] or list(
            self._optimizers
        )
        prepared = AcceleratedScheduler(
            scheduler, own, self.step_scheduler_with_optimizer, self.split_batches
        )
        self._schedulers.append(prepared)
        return prepared

    def unwrap_model(
        self, model: torch.nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = False
    ) -> torch.nn.Module:
        """The script's module, without its wrapper.

        Args:
            model: a prepared model, or one that was never prepared.
            keep_fp32_wrapper: False: also take out the mixed precision forward.
            keep_torch_compile: leave a compiled model compiled.
        """
        wrapped = getattr(model, "_orig_mod", model)
        inner = self.backend.unwrap(wrapped, keep_fp32_wrapper)
        if not keep_torch_compile:
            return inner
        return model if inner is wrapped else self.backend.unwrap_compiled(wrapped)

    def free_memory(self, *objects: Any) -> list[Any]:
        """Forget everything prepared and free memory; returns None for each of `objects`."""
        for prepared in (self._models, self._optimizers, self._modelless, self._schedulers):
            prepared.clear()
        self._loaders.clear()
        self._prepared.clear()
        self.gradient_state.window.__init__()  # type: ignore[misc]
        return files.release_memory(*objects)

    clear = free_memory
