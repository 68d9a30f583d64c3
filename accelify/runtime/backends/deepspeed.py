"""DeepSpeed: optimizer states, gradients and weights divided between ranks by its ZeRO, stages 0 to 3.

DeepSpeed makes an engine of a model and its optimizer together, and scripts pass them to `prepare` in any order. So
`wrap` puts the model into a shell, and `adopt` makes the engine when the optimizer is there. A model whose optimizer
never comes runs as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import files, guard
from ..precision import Precision, run_in_precision
from ..state import DistributedType, GradientState, PartialState
from .agreeing_names import agree_on_names
from .base import Backend
from .deepspeed_config import Script, resolved
from .deepspeed_files import only_data
from .deepspeed_model import DeepSpeedModel
from .deepspeed_norms import keep_statistics
from .deepspeed_package import load_deepspeed, tell_of_locks
from .deepspeed_plugin import DeepSpeedPlugin, DummyOptim, DummyScheduler, scheduler_of, when_scheduler_comes
from .deepspeed_training import Training
from .deepspeed_weights import is_divided, load_whole, note_full_values, whole_state

_TAG = "deepspeed"
_FACTS = "accelify-deepspeed.json"


class DeepSpeedBackend(Backend):
    """ZeRO over torch.distributed, for one model with one optimizer, or several of such pairs."""

    reads_shards = True

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        self.plugin = _only_plugin(options["deepspeed"])
        self.deepspeed = load_deepspeed(process.device)
        tell_of_locks()
        self.plugin.check_precision(precision.name)
        from deepspeed.accelerator import get_accelerator

        if precision.name == "fp16" and not get_accelerator().is_fp16_supported():
            raise ValueError(
                f'mixed_precision="fp16": DeepSpeed does not compute in fp16 on this {self.device.type}; use "bf16"'
            )
        # DeepSpeed scales losses in fp16 itself.
        precision.scaler = None
        accumulation = GradientState().plugin
        accumulation.num_steps = self.plugin.accumulation(accumulation.num_steps)
        if not dist.is_initialized():
            dist.init_process_group(
                "nccl" if self.device.type == "cuda" else "gloo",
                store=dist.HashStore(),  # type: ignore[attr-defined]
                rank=0,
                world_size=1,
            )
        self._models: list[weakref.ref[DeepSpeedModel]] = []
        self._batch_sizes: list[int] = []
        self._last_norm = torch.zeros((), device=self.device)
        # DeepSpeed's files are being written or read; its weights are in parts then.
        self.moving_shards = False

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.DEEPSPEED

    def models(self) -> list[DeepSpeedModel]:
        """The wrapped models still in use, in order of wrapping."""
        return [m for r in self._models if (m := r()) is not None]

    def trainings(self) -> list[Training]:
        """Those of the models that have an optimizer."""
        return [m.training_of for m in self.models() if m.training_of is not None]

    def _training(self, optimizer: torch.optim.Optimizer) -> Training:
        for training in self.trainings():
            if training.optimizer is optimizer:
                return training
        raise ValueError(
            f"the optimizer {type(optimizer).__name__} has no model under DeepSpeed: prepare its model too"
        )

    # Preparing

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        return model if any(map(is_divided, model.parameters())) else model.to(self.device)

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        from ..collectives import broadcast_tensors

        agree_on_names(model)
        broadcast_tensors([t.data for t in (*model.parameters(), *model.buffers()) if not is_divided(t)])
        if evaluation or not any(p.requires_grad for p in model.parameters()):
            run_in_precision(model, self.precision)
            return model
        shell = DeepSpeedModel(model, self)
        self._models.append(weakref.ref(shell))
        return shell

    def unwrap(self, model: torch.nn.Module, keep_precision: bool = True) -> torch.nn.Module:
        return model.module if isinstance(model, DeepSpeedModel) else super().unwrap(model, keep_precision)

    def note_loader(self, batch_size: int | None) -> None:
        if batch_size is not None:
            self._batch_sizes.append(batch_size)

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        if any(t.optimizer is optimizer for t in self.trainings()):
            return
        contained = [p for group in optimizer.param_groups for p in group["params"]]
        owners = [
            m
            for m in self.models()
            if not {id(p) for p in m.module.parameters()}.isdisjoint(map(id, contained))
        ]
        if not owners:
            return
        name = type(optimizer).__name__
        known = {id(p) for m in owners for p in m.module.parameters()}
        if any(id(p) not in known for p in contained):
            raise ValueError(
                f"the optimizer {name} holds parameters of no prepared model: DeepSpeed trains those of one prepared "
                "model; put them into it as a torch.nn.Module"
            )
        if len(owners) > 1:
            raise ValueError(
                f"the optimizer {name} holds parameters of {len(owners)} models: DeepSpeed trains one model with one "
                "optimizer; make an optimizer for each, or put the models into one torch.nn.Module"
            )
        model = owners[0]
        if model.training_of is not None:
            first = type(model.training_of.optimizer).__name__
            raise ValueError(
                f"the model {type(model.module).__name__} has two optimizers, {first} and {name}: DeepSpeed trains "
                "one model with one optimizer; make one of them, with a group for each"
            )
        self._start(model, optimizer, contained)

    def _start(
        self, model: DeepSpeedModel, optimizer: torch.optim.Optimizer, contained: list[torch.Tensor]
    ) -> None:
        """Make the engine of a model and its optimizer."""
        stand_in = isinstance(optimizer, DummyOptim)
        config = resolved(
            self.plugin,
            Script(
                precision=self.precision.name,
                ranks=self.world_size,
                accumulation=GradientState().plugin.num_steps,
                batch_sizes=self._batch_sizes,
                module=model.module,
                optimizer=optimizer,
                scheduler=scheduler_of(optimizer),
                scaling=self.options.get("scaler"),
            ),
        )
        self._mark_experts(model.module)
        # DeepSpeed wants it even of a single process.
        os.environ.setdefault("LOCAL_RANK", str(self.process.local_process_index))
        engine, *_ = self.deepspeed.initialize(
            model=model.module,
            optimizer=None if stand_in else optimizer,
            model_parameters=optimizer.param_groups if stand_in else None,
            config=config,
            dist_init_required=False,
        )
        if stand_in:
            # Schedulers and scripts that hold the stand-in work on the real one's groups from here on.
            optimizer.param_groups = engine.basic_optimizer.param_groups
            optimizer.state = engine.basic_optimizer.state
            optimizer.defaults = engine.basic_optimizer.defaults
        if engine.fp16_enabled() or engine.bfloat16_enabled():
            keep_statistics(model.module)
        note_full_values(engine)
        training = Training(engine, optimizer, contained)
        model.__dict__["training_state"] = training
        self._hand_over_scheduler(training)

    def _mark_experts(self, module: torch.nn.Module) -> None:
        names = {n.strip() for n in (self.plugin.transformer_moe_cls_names or "").split(",")} - {""}
        if not names or self.plugin.zero_stage != 3:
            return
        classes = {type(m) for m in module.modules() if type(m).__name__ in names}
        unknown = names - {c.__name__ for c in classes}
        if unknown:
            raise ValueError(
                f"transformer_moe_cls_names: the model has no module of the class {', '.join(unknown)}"
            )
        self.deepspeed.utils.set_z3_leaf_modules(module, list(classes))

    def _hand_over_scheduler(self, training: Training) -> None:
        """A scheduler of the configuration steps when the script's stand-in does; without one, with the engine."""
        known = weakref.ref(training)

        def give(stand_in: DummyScheduler) -> None:
            own = known()
            if own is None:
                return
            if own.engine.lr_scheduler is not None:
                stand_in.scheduler, own.engine.lr_scheduler = own.engine.lr_scheduler, None
            elif stand_in.lr_scheduler_callable is not None:
                stand_in.scheduler = stand_in.lr_scheduler_callable(own.optimizer)
            else:
                raise ValueError(
                    "the script has a DummyScheduler and the DeepSpeed configuration no scheduler: add the key "
                    "scheduler, or give lr_scheduler_callable"
                )

        stand_in = scheduler_of(training.optimizer)
        if stand_in is not None:
            give(stand_in)
        else:
            when_scheduler_comes(training.optimizer, give)

    def parameters_of(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        for training in self.trainings():
            if training.optimizer is optimizer:
                return training.parameters
        return super().parameters_of(optimizer)

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        raise ValueError(
            "an optimizer holds parameters of no prepared model: DeepSpeed trains those of models only; put them into "
            "the model as a torch.nn.Module"
        )

    # A training step

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        retain_graph = bool(kwargs.pop("retain_graph", False))
        for name, value in kwargs.items():
            if value:
                raise ValueError(f"backward({name}=...): DeepSpeed's backward takes retain_graph only")
        trainings = self.trainings()
        # What waits already decides; one model's loss scale may change while another's gradients wait.
        scales = (
            [t.stored_scale for t in trainings if t.waiting] or [t.loss_scale for t in trainings] or [1.0]
        )
        scale = min(scales)
        with guard.backward(), contextlib.ExitStack() as stack:
            for training in trainings:
                stack.enter_context(training.backward())
            scaled = loss if scale == 1.0 else loss.float() * scale
            scaled.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
            reached = [t.after_backward(scale) for t in trainings]
        if not any(reached):
            raise ValueError(
                "backward reached no model that DeepSpeed trains: prepare the model and its optimizer, and compute the "
                "loss from what the prepared model returns"
            )

    def scale_gradients(self, parameters: list[torch.Tensor], factor: float) -> None:
        # What comes next is divided by it instead, and all of it multiplied at the end.
        for training in self.trainings():
            if training.waiting:
                training.stored_scale /= factor

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if closure is not None:
            raise ValueError(
                f"{type(optimizer).__name__}.step(closure): DeepSpeed's optimizers take no closure; use another engine"
            )
        training = self._training(optimizer)
        with guard.backward():
            training.step()
        self._share_buffers(training)
        return None

    def _share_buffers(self, training: Training) -> None:
        """Give every rank rank 0's buffers, as DistributedDataParallel does."""
        buffers = [b for b in training.engine.module.buffers() if b.numel()]
        if buffers and self.world_size > 1:
            dist._broadcast_coalesced(  # type: ignore[attr-defined]
                dist.distributed_c10d._get_default_group(), [b.data for b in buffers], 25_000_000, 0
            )

    def step_was_skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        return self._training(optimizer).skipped

    def zero_grad(self, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
        self._training(optimizer).drop_gradients()

    def shared_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        raise ValueError("step(closure): DeepSpeed's optimizers take no closure; use another engine")

    @contextlib.contextmanager
    def join(self, models: list[torch.nn.Module]) -> Iterator[None]:
        raise ValueError(
            "join_uneven_inputs: under DeepSpeed every rank takes part in every step; even_batches=True (the default) "
            "needs no join"
        )
        yield

    # Clipping

    def clip_grad_norm(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, **kwargs: Any
    ) -> torch.Tensor:
        """See the base class. Inside a window that is not at its end, the norm of the last complete gradients."""
        if not GradientState().sync_gradients:
            return self._last_norm
        chosen = self._whole_models(parameters, "clip_grad_norm_")
        if not chosen:
            return torch.zeros((), device=self.device)
        for training in chosen:
            training.finish()
        norm_type = float(norm_type)
        powers = torch.stack([t.power_sum(norm_type) for t in chosen])
        norm = powers.max() if norm_type == float("inf") else powers.sum() ** (1.0 / norm_type)
        if kwargs.get("error_if_nonfinite") and not torch.isfinite(norm):
            raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {norm.item()}")
        self._last_norm = norm
        if float(max_norm) != float("inf"):
            self._clip(chosen, float(max_norm), norm)
        return norm

    def _clip(self, chosen: list[Training], max_norm: float, norm: torch.Tensor) -> None:
        for training in chosen:
            stated = float(training.engine.gradient_clipping() or 0.0)
            if stated and stated != max_norm:
                raise ValueError(
                    f"gradient_clipping is {stated} in the DeepSpeed configuration and the script clips to {max_norm}: "
                    'write "auto" there, or the same in both'
                )
            factor = min(1.0, max_norm / (float(norm) + 1e-6))
            # Where the configuration asks for it, the engine's step clips.
            if not stated and factor < 1.0:
                training.multiply(factor)

    def clip_grad_value(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        for training in self._whole_models(parameters, "clip_grad_value_"):
            training.finish()
            training.clamp(float(clip_value))

    def _whole_models(self, parameters: Iterable[torch.Tensor], stated: str) -> list[Training]:
        """The models with waiting gradients whose parameters these are."""
        given = {id(p) for p in parameters}
        chosen = [t for t in self.trainings() if not given.isdisjoint(t.identities)]
        if any(not t.identities <= given for t in chosen):
            raise ValueError(
                f"{stated} was given some of a model's parameters: DeepSpeed clips all of a model's gradients "
                "together; give model.parameters()"
            )
        return [t for t in chosen if t.waiting]

    # Weights and checkpoints

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        module = self.unwrap(model)
        if isinstance(model, DeepSpeedModel) and model.training_of is not None:
            return whole_state(module, bool(self.plugin.zero3_save_16bit_model))
        return module.state_dict()

    def load_state_dict(self, model: torch.nn.Module, weights: dict[str, Any], strict: bool = True) -> Any:
        return load_whole(self.unwrap(model), weights, strict)

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        self.moving_shards = True
        try:
            yield
        finally:
            self.moving_shards = False

    def saves_shards(
        self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], shared: bool
    ) -> bool:
        return True

    def save_shards(
        self,
        directory: Path,
        models: list[torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
        asynchronous: bool = False,
    ) -> None:
        # DeepSpeed writes in the foreground, whatever is asked for.
        self._refuse_waiting()
        for i, model in enumerate(models):
            model = getattr(model, "_orig_mod", model)
            home = directory / f"model_{i}"
            if isinstance(model, DeepSpeedModel) and model.training_of is not None:
                with self._moving():
                    model.training_of.engine.save_checkpoint(str(home), tag=_TAG)
            elif self.rank == 0:
                files.save_weights(self.state_dict(model), home, "10GB", True)
        if self.rank == 0:
            facts = {"processes": self.world_size, "stage": self.plugin.zero_stage}
            (directory / _FACTS).write_text(json.dumps(facts))

    def _refuse_waiting(self) -> None:
        if any(t.waiting for t in self.trainings()):
            raise ValueError(
                "DeepSpeed's checkpoints hold no gradients, and some wait for a step: call save_state after the "
                "optimizer's step"
            )

    def window_gradients(self, parameters: list[torch.Tensor]) -> list[Any]:
        self._refuse_waiting()
        return [None] * len(parameters)

    def restore_window_gradients(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        for training in self.trainings():
            training.drop_gradients()

    def load_shards(
        self, directory: Path, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        from ..weights import load_weights

        self._check_shards(directory)
        for i, model in enumerate(models):
            model = getattr(model, "_orig_mod", model)
            home = directory / f"model_{i}"
            if not isinstance(model, DeepSpeedModel) or model.training_of is None:
                load_weights(model, home, engine=self)
                continue
            model.training_of.drop_gradients()
            with self._moving(), only_data():
                path, _ = model.training_of.engine.load_checkpoint(str(home), tag=_TAG)
            if path is None:
                raise ValueError(
                    f"the checkpoint {directory} holds nothing for {type(model.module).__name__}"
                )

    def _check_shards(self, directory: Path) -> None:
        try:
            facts = json.loads((directory / _FACTS).read_text())
        except (OSError, ValueError):
            raise ValueError(f"the checkpoint {directory} was not saved under DeepSpeed") from None
        if facts["stage"] != self.plugin.zero_stage:
            raise ValueError(
                f"the checkpoint {directory} was saved with zero_stage {facts['stage']}, this run has "
                f"{self.plugin.zero_stage}: load it with the same; weights of save_model load anywhere"
            )
        if facts["processes"] != self.world_size and facts["stage"] > 0:
            raise ValueError(
                f"the checkpoint {directory} was saved by {facts['processes']} processes and DeepSpeed's parts fit no "
                f"other number ({self.world_size} here): load it on as many; weights of save_model load anywhere"
            )


def _only_plugin(given: Any) -> DeepSpeedPlugin:
    """The plugin of the run; ValueError where there are several, or something else."""
    if isinstance(given, dict):
        if len(given) > 1:
            raise ValueError(
                f"deepspeed_plugins names {', '.join(given)}: one DeepSpeedPlugin serves all models of a run; give one"
            )
        given = next(iter(given.values()), None)
    if not isinstance(given, DeepSpeedPlugin):
        raise ValueError(f"deepspeed_plugin must be a DeepSpeedPlugin, not {type(given).__name__}")
    return given
