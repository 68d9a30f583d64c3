"""Several processes, each with the whole model: the models that are trained so, and what a step averages."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from .. import guard
from ..plugins import DistributedDataParallelKwargs
from ..precision import Precision, run_in_precision
from ..state import PartialState
from .agreeing_names import agree_on_names
from .averaging import ParameterSet, share_tensors
from .distributed_model import SYNC_IN_FORWARD, DistributedModel
from .equal_weights import EqualWeights
from .reentrant import is_reentrant
from .unused import unsigned_zeros
from .wrapped import AveragingBackend


class DDPBackend(AveragingBackend):
    """Data parallel over torch.distributed, with gloo or NCCL."""

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        super().__init__(process, precision, options)
        handler = options.get("ddp")
        self.handler = (
            handler if isinstance(handler, DistributedDataParallelKwargs) else DistributedDataParallelKwargs()
        )
        self._models: list[weakref.ref[DistributedModel]] = []
        # Models without a trained parameter, whose statistics (batch norm) may go on from the batches of each rank.
        self._frozen: list[weakref.ref[torch.nn.Module]] = []
        self.loose = ParameterSet([], "parameters of no model")
        self.joining = False
        self._equal = EqualWeights(self)
        self._backwards = 0

    def adopt_loader(self, loader: Any) -> None:
        loader.between_batches = self._equal

    def models(self) -> list[DistributedModel]:
        """The wrapped models still in use, in order of wrapping."""
        found = [m for r in self._models if (m := r()) is not None]
        if len(found) < len(self._models):
            self._models = [r for r in self._models if r() is not None]
        return found

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        from ..collectives import broadcast_tensors

        agree_on_names(model)
        copied = getattr(model, "_orig_mod", model)
        if isinstance(copied, DistributedModel):
            # A deep copy of a wrapped model. Two reducers, one in the other, would wait for each other's gradients.
            model = copied.module
            copied.leave_group()
        if evaluation or not any(p.requires_grad for p in model.parameters()):
            broadcast_tensors([t.data for t in (*model.parameters(), *model.buffers())])
            run_in_precision(model, self.precision)
            if any(True for _ in model.buffers()):
                self._frozen = [r for r in self._frozen if r() not in (None, model)] + [weakref.ref(model)]
            return model
        # Without `device_ids` a forward gets what it is given, as with one process: prepared loaders have moved
        # batches, a model that was sent to the host gets inputs there, lengths for packing stay there, and a container
        # that the model writes into is the script's own.
        wrapped = DistributedModel(model, self.precision, self._ddp_arguments())
        wrapped.share_buffers()
        self._register_hook(wrapped)
        self._models.append(weakref.ref(wrapped))
        return wrapped

    def compile_whole(self, model: torch.nn.Module, arguments: dict[str, Any]) -> torch.nn.Module:
        if isinstance(model, DistributedModel):
            model.compile_module(arguments)
            return model
        return super().compile_whole(model, arguments)

    def unwrap_compiled(self, model: torch.nn.Module) -> torch.nn.Module:
        compiled = model._compiled if isinstance(model, DistributedModel) else None
        return super().unwrap_compiled(model) if compiled is None else compiled

    def _register_hook(self, model: DistributedModel) -> None:
        """Compress gradients on the way, as the handler asks."""
        handler = self.handler
        if handler.comm_hook == "no" and handler.comm_wrapper == "no":
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        hooks: dict[str, Any] = {
            "no": default_hooks.allreduce_hook,
            "fp16": default_hooks.fp16_compress_hook,
            "bf16": default_hooks.bf16_compress_hook,
            "power_sgd": powerSGD_hook.powerSGD_hook,
            "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook,
        }
        wrappers: dict[str, Any] = {
            "no": lambda hook: hook,
            "fp16": default_hooks.fp16_compress_wrapper,
            "bf16": default_hooks.bf16_compress_wrapper,
        }
        for name, table in (("comm_hook", hooks), ("comm_wrapper", wrappers)):
            if getattr(handler, name) not in table:
                raise ValueError(f"{name} must be one of {', '.join(table)}, not {getattr(handler, name)!r}")
        state = None
        if handler.comm_hook.endswith("power_sgd"):
            state = powerSGD_hook.PowerSGDState(None, **handler.comm_state_option)
        hook = wrappers[handler.comm_wrapper](hooks[handler.comm_hook])
        model.register_comm_hook(state, hook)
        model.keeps_zero_signs = state is None

    def _ddp_arguments(self) -> dict[str, Any]:
        handler = self.handler
        return {
            "dim": handler.dim,
            "bucket_cap_mb": handler.bucket_cap_mb,
            "find_unused_parameters": handler.find_unused_parameters,
            "gradient_as_bucket_view": handler.gradient_as_bucket_view,
            "static_graph": handler.static_graph,
            # Done after the backward instead: in the forward it would change buffers that a graph holds.
            SYNC_IN_FORWARD: False,
        }

    def unwrap(self, model: torch.nn.Module, keep_precision: bool = True) -> torch.nn.Module:
        if isinstance(model, DistributedDataParallel):
            return model.module  # type: ignore[no-any-return]
        return super().unwrap(model, keep_precision)

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        from ..collectives import broadcast_tensors

        broadcast_tensors([p.data for p in parameters])
        self.loose.add(parameters)

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        models = self.models()
        before = [m.before_backward(sync) for m in models]
        self._backwards += 1
        if self._backwards & (self._backwards - 1) == 0 and is_reentrant(loss):
            # Looked for now and then, as walking over the graph takes time.
            for model in models:
                model.watch_additions()
        loose = self.loose.snapshot() if sync and self.loose.parameters else None
        with self._watched(models, before):
            if self.last_scale == 0.0:
                with unsigned_zeros(p for m in models for p in m._reduced):
                    loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            else:
                loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            completed = [m.complete_reduction(marks) for m, marks in zip(models, before, strict=True)]
        # While ranks may have left, nobody answers; the join ends by sharing the last rank's model.
        shares = self.handler.broadcast_buffers and not self.joining
        averaged = False
        for model, marks, complete in zip(models, before, completed, strict=True):
            if model.after_backward(marks, complete):
                averaged = model.averaged = True
                if shares:
                    model.share_buffers()
        if averaged and shares:
            self._share_frozen(models[0].process_group)
        if loose is not None and loose != self.loose.snapshot():
            self.loose.average()

    def _watched(
        self, models: list[DistributedModel], before: list[Any]
    ) -> contextlib.AbstractContextManager[Any]:
        """A backward in which other ranks may be waited for."""
        if not guard.is_on() or before.count(None) == len(before):
            return contextlib.nullcontext()
        waiting = [m for m, marks in zip(models, before, strict=True) if marks is not None]
        # Those whose reducers may all-reduce.
        reducing = [m._trained.stated for m in waiting if m._armed and not (m._flat or m._sync_next)]
        return guard.backward(reducers=tuple(reducing))

    def _share_frozen(self, group: Any) -> None:
        """Give every rank rank 0's statistics of models that only run: in training mode batches change them, too."""
        if not self._frozen:
            return
        running = [m for r in self._frozen if (m := r()) is not None and m.training]
        if running:
            share_tensors([b.data for model in running for b in model.buffers()], group)

    @contextlib.contextmanager
    def no_sync(self, models: Iterable[torch.nn.Module]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for model in models:
                if isinstance(model, DistributedDataParallel) and not getattr(model, "learns_graph", False):
                    stack.enter_context(model.no_sync())
            yield

    def sync_next(self, model: torch.nn.Module) -> None:
        if isinstance(model, DistributedModel):
            model._sync_next = True

    @contextlib.contextmanager
    def join(self, models: list[torch.nn.Module]) -> Iterator[None]:
        self.joining = True
        try:
            own: list[Any] = [m for m in models if isinstance(m, DistributedModel)]
            if not own:
                raise ValueError(
                    "join_uneven_inputs needs the prepared models that are trained in it, and got none"
                )
            with Join(own):
                for model in own:
                    if model._flat:
                        model.refuse_join()
                yield
            guard.rejoin()
        finally:
            self.joining = False
