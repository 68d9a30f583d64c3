"""Several processes, each with the whole model: torch's DistributedDataParallel, and what it cannot do by itself.

DDP's reducer expects every parameter to get its gradient once between two forwards, in a backward that follows the
model's own forward. Scripts do otherwise: they call other methods of the model, leave parameters unused, run two
backwards after two forwards, take gradients of gradients. So after every backward it is checked, without a word to
other ranks, whether the reducer averaged all that this backward produced. Where parameters were left out, the reducer
is completed (`unused`), and goes on to be used. Where gradients came without it, those of that step are averaged by
one flat all-reduce (averaging twice changes nothing, so this is always right), and so are those of all later steps of
that model, whose reducer is taken out. So it is, too, where the script moves or casts parameters: torch makes the
nodes anew then on which the reducer's hooks sit.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from .. import guard
from ..plugins import DistributedDataParallelKwargs
from ..precision import Precision, run_in_precision
from ..state import GradientState, PartialState
from .averaging import ParameterSet, mark_of, share_tensors, sparse_of
from .equal_weights import EqualWeights
from .unused import complete_reduction, unsigned_zeros
from .wrapped import AveragingBackend, ScriptAttributes

# The argument has a new name since torch 2.13.
_SYNC_IN_FORWARD = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class DistributedModel(ScriptAttributes, DistributedDataParallel):
    """A model on several ranks. Attributes that DDP does not have are the script's module's own.

    Args:
        module: the placed model.
        precision: of its forward.
        kwargs: for DDP.
    """

    def __init__(self, module: torch.nn.Module, precision: Precision, kwargs: dict[str, Any]) -> None:
        super().__init__(module, **kwargs)
        self._precision = precision
        self._look_over(module)
        trained = (p for p in self._known if p.requires_grad)
        sparse = sparse_of(module)
        self._trained = ParameterSet(trained, type(module).__name__, sparse)
        ignored = {id(p) for n, p in module.named_parameters() if n in self.parameters_to_ignore}
        # What the reducer reduces, in its order, whatever is frozen later.
        self._reduced = [p for p in self._trained.parameters if id(p) not in ignored]
        # Whether what a communication hook averages keeps the sign of a zero.
        self.keeps_zero_signs = True
        # A static graph is learned in a backward that averages: where the first batches of an accumulation window do
        # not, the very first one does all the same, and what comes of it is averaged again with the rest.
        self.learns_graph = bool(self.static_graph)
        self._route: Callable[..., Any] | None = None
        # Whether forward or such a method is running. A backward then is its own: no forward of DDP's has ended.
        self._running = False
        self._flat = False
        # Whether a forward has readied the reducer since it last averaged.
        self._armed = False
        self._sync_next = False
        # Whether gradients of it were averaged since ranks last compared its weights.
        self.averaged = False
        self._edges = list(map(get_gradient_edge, self._reduced))
        self._hooked = self._accumulators()
        PartialState().group_holders.add(self)
        if sparse:
            # The reducer reduces sparse gradients where they lie: what it has begun cannot be averaged again.
            self.leave_reducer()
        self.complete()

    # What scripts see

    @property
    def dim(self) -> Any:
        """The script's module's own, where it has one: DDP's is of no use here, and models often have a `dim`."""
        return getattr(self.__dict__["_modules"].get("module"), "dim", 0)

    @dim.setter
    def dim(self, value: int) -> None:
        pass

    def _routed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the script's module that, with gradients on, runs as a forward of DDP's does."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or self._flat or not self.module.training:
                return method(*args, **kwargs)
            self._route, self._running = method, True
            try:
                return DistributedDataParallel.forward(self, *args, **kwargs)  # type: ignore[no-untyped-call]
            finally:
                self._route, self._running = None, False

        return call

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The script's module's own, without a prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The script's module's own, without a prefix."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """The script's module's own, without a prefix."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """The script's module's own, without a prefix."""
        return self.module.named_buffers(*args, **kwargs)

    def train(self, mode: bool = True) -> DistributedModel:
        """As torch's; a layer frozen or thawed since is taken into account from here on."""
        super().train(mode)
        self.follow_parameters()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._flat:
            return self._run_ddp_forward(*args, **kwargs)
        self._running = True
        try:
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            told = guard.explained(error, f"the forward pass of {type(self.module).__name__}")
            if told is error:
                raise
            raise told from error
        finally:
            self._running = False

    def _run_ddp_forward(self, *args: Any, **kwargs: Any) -> Any:
        self._armed = self._armed or (torch.is_grad_enabled() and self.require_backward_grad_sync)
        GradientState().loaders.meet((args, kwargs))
        route = self._route
        # What the method calls itself must not be taken for another routed call.
        self._route = None
        # torch's compiler takes no buckets smaller than torch's first one.
        if self._flat or self.bucket_bytes_cap < dist._DEFAULT_FIRST_BUCKET_BYTES:  # type: ignore[attr-defined]
            return (route or self._run_module)(*args, **kwargs)
        # By this a compiler sees where buckets end, and cuts its graph there: they are reduced during the backward.
        with self._inside_ddp_forward():
            return (route or self._run_module)(*args, **kwargs)

    def _run_module(self, *args: Any, **kwargs: Any) -> Any:
        return self._precision.run(self.module, *args, **kwargs)

    # Averaging

    def follow_parameters(self) -> None:
        """Average the gradients of exactly the parameters that are trained now."""
        trained = self._trained
        self._look_over(self.module)
        now: list[torch.Tensor] = [p for p in self._known if p.requires_grad]
        if len(now) != len(trained.parameters) or any(
            a is not b for a, b in zip(now, trained.parameters, strict=True)
        ):
            trained.parameters = now
            self.leave_reducer()

    def _look_over(self, module: torch.nn.Module) -> None:
        """Note what the module is made of. Walking over all of it in every step would cost more than the rest of it."""
        modules = list(module.modules())
        self._buffer_homes = [m._buffers for m in modules if m._buffers]
        self._known = list(module.parameters())
        self._pattern = [p.requires_grad for p in self._known]
        self._homes: list[dict[str, Any]] = [
            home for m in modules for home in (m._parameters, m._modules) if home
        ]
        # Held, so that what comes in the place of a part has another id.
        self._parts = [part for home in self._homes for part in home.values()]
        self._part_ids = list(map(id, self._parts))

    def _is_changed(self) -> bool:
        """Whether a weight was frozen, thawed or replaced, or a layer was, since that was looked at."""
        if self._pattern != [p.requires_grad for p in self._known]:
            return True
        return self._part_ids != list(map(id, chain.from_iterable(home.values() for home in self._homes)))

    def leave_reducer(self) -> None:
        """Average by flat all-reduces from now on."""
        self.refuse_join()
        if not self._flat:
            self._flat = True
            self.reducer._remove_autograd_hooks()

    def _accumulators(self) -> list[Any]:
        """The nodes that the reducer's hooks sit on, as far as their loss would not show in what it has averaged."""
        # Where it waits for all, a part of them that is lost leaves it waiting; unused ones it does not miss.
        count = None if self.find_unused_parameters else 1
        return [get_gradient_edge(p).node for p in self._trained.parameters[:count]]

    def _is_moved(self) -> bool:
        """Whether parameters were on another device, or of another type, since the reducer hung its hooks on them."""
        return any(a is not b for a, b in zip(self._accumulators(), self._hooked, strict=False))

    def __getstate__(self) -> dict[str, Any]:
        # A copy has a reducer of its own; nodes of the graph cannot be copied.
        return {**super().__getstate__(), "_hooked": [], "_edges": []}  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._edges = list(map(get_gradient_edge, self._reduced))

    def leave_group(self) -> None:
        """Hold the process group no longer: from now on this is the module alone."""
        self._hooked = self._edges = []
        self._flat = True
        self.require_backward_grad_sync = False
        self.process_group = None  # type: ignore[assignment]
        self.reducer = None  # type: ignore[assignment]
        self.logger = None

    def refuse_join(self) -> None:
        """Ranks that ran out of batches answer DDP's own all-reduces, no others."""
        if self._join_config.enable:
            raise RuntimeError(
                f"{type(self.module).__name__} cannot be trained in join_uneven_inputs: there every parameter needs a "
                "gradient in one backward after each forward; DistributedDataParallelKwargs(find_unused_parameters="
                "True) allows for unused ones, and even_batches=True needs no join"
            )

    def before_backward(self, sync: bool) -> tuple[Any, ...] | None:
        """Marks by which `after_backward` sees what came in; None: nothing is to be averaged."""
        if self._is_changed():
            self.follow_parameters()
        if self._sync_next:
            return ()
        if not ((sync or (self.learns_graph and self._armed)) and self.require_backward_grad_sync):
            return None
        self.learns_graph = False
        if self._running:
            self.leave_reducer()
        if self._armed and not self._flat and self._is_moved():
            # Said where other ranks have not moved theirs, and wait in this backward.
            self._trained.told += ", whose parameters this rank has moved or cast"
            self.leave_reducer()
        if self._armed and not self._flat and not self.find_unused_parameters:
            # If the reducer completes, every gradient has changed: one mark is enough.
            return (mark_of(self._trained.parameters[0]),)
        return tuple(self._trained.snapshot())

    def complete_reduction(self, before: tuple[Any, ...] | None) -> bool:
        """Average what the reducer still waits for, as other ranks may have its gradients; returns whether it did."""
        if before is None or self._sync_next or self._flat or not self._armed:
            return False
        if not complete_reduction(self.reducer, self._reduced, self._edges, self.keeps_zero_signs):
            return False
        self.refuse_join()
        return True

    def after_backward(self, before: tuple[Any, ...] | None, completed: bool) -> bool:
        """Complete the averaging; returns whether gradients of this model were averaged.

        Args:
            before: what `before_backward` returned.
            completed: what `complete_reduction` returned.
        """
        if before is None:
            return False
        if self._sync_next:
            self._sync_next = False
            self._trained.average()
            return True
        if completed:
            self._armed = False
            return True
        touched = any(old != mark_of(p) for old, p in zip(before, self._trained.parameters, strict=False))
        if self._armed and not self._flat:
            self._armed = not touched
        elif touched:
            self.leave_reducer()
            self._trained.average()
        return touched

    def share_buffers(self) -> None:
        """Give every rank rank 0's buffers, past the version counters: a graph still to be walked may hold them."""
        own = [b.data for home in self._buffer_homes for b in home.values() if b is not None]
        if own:
            share_tensors(own, self.process_group, self.broadcast_bucket_size)


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
        self._loose = ParameterSet([], "parameters of no model")
        self._joining = False
        self._equal = EqualWeights()

    def adopt_loader(self, loader: Any) -> None:
        loader.between_batches = self._keep_equal

    def _keep_equal(self, at_end: bool) -> None:
        """A loop that trains asks for its next batch, or is at its end."""
        # Of steps that average nothing, as between two meetings of LocalSGD, weights are each rank's own.
        models = [m for m in self.models() if m.averaged]
        if not models or self._joining:
            return
        modules, loose = [m.module for m in models], self._loose.parameters
        if at_end:
            self._equal.compare(modules, loose)
        else:
            self._equal.behind_batch(modules, loose)
        for model in models:
            model.averaged = False

    def models(self) -> list[DistributedModel]:
        """The wrapped models still in use, in order of wrapping."""
        found = [(r, m) for r in self._models if (m := r()) is not None]
        self._models = [r for r, _ in found]
        return [m for _, m in found]

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        from ..collectives import broadcast_tensors

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
        kwargs = self._ddp_arguments()
        if self.device.type == "cuda":
            kwargs |= {"device_ids": [self.device.index], "output_device": self.device.index}
        wrapped = DistributedModel(model, self.precision, kwargs)
        wrapped.share_buffers()
        self._register_hook(wrapped)
        self._models.append(weakref.ref(wrapped))
        return wrapped

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
            _SYNC_IN_FORWARD: False,
        }

    def unwrap(self, model: torch.nn.Module, keep_precision: bool = True) -> torch.nn.Module:
        if isinstance(model, DistributedDataParallel):
            return model.module  # type: ignore[no-any-return]
        return super().unwrap(model, keep_precision)

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        from ..collectives import broadcast_tensors

        broadcast_tensors([p.data for p in parameters])
        self._loose.add(parameters)

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        models = self.models()
        before = [m.before_backward(sync) for m in models]
        loose = self._loose.snapshot() if sync and self._loose.parameters else None
        completed = [False] * len(models)
        with contextlib.ExitStack() as stack:
            if self.last_scale == 0.0:
                stack.enter_context(unsigned_zeros(p for m in models for p in m._reduced))
            if any(marks is not None for marks in before):
                stack.enter_context(guard.backward(reducers=self._reducers_in_use(models, before)))
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            completed = [m.complete_reduction(marks) for m, marks in zip(models, before, strict=True)]
        # While ranks may have left, nobody answers; the join ends by sharing the last rank's model.
        shares = self.handler.broadcast_buffers and not self._joining
        averaged = False
        for model, marks, complete in zip(models, before, completed, strict=True):
            if model.after_backward(marks, complete):
                averaged = model.averaged = True
                if shares:
                    model.share_buffers()
        if averaged and shares:
            self._share_frozen(models[0].process_group)
        if loose is not None and loose != self._loose.snapshot():
            self._loose.average()

    def _reducers_in_use(self, models: list[DistributedModel], before: list[Any]) -> tuple[str, ...]:
        """Names of the models whose reducers may all-reduce in a backward."""
        return tuple(
            model._trained.told
            for model, marks in zip(models, before, strict=True)
            if marks is not None and model._armed and not (model._flat or model._sync_next)
        )

    def _share_frozen(self, group: Any) -> None:
        """Give every rank rank 0's statistics of models that only run: in training mode batches change them, too."""
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
        self._joining = True
        try:
            own: list[Any] = [m for m in models if isinstance(m, DistributedModel)]
            with Join(own):
                for model in own:
                    if model._flat:
                        model.refuse_join()
                yield
            guard.rejoin()
        finally:
            self._joining = False
