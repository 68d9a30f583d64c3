"""A model on several ranks: torch's DistributedDataParallel, and what it cannot do by itself.

DDP's reducer expects every parameter to get its gradient once between two forwards, in a backward that follows the
model's forward. Scripts do otherwise: they call other methods of the model, leave parameters unused, run two backwards
after two forwards, take gradients of gradients. So after every backward it is checked, without communication with other
ranks, whether the reducer averaged all that this backward produced. Where parameters were left out, the reducer is
completed (`unused`), and goes on to be used. Where gradients came without it, those of that step are averaged by
one flat all-reduce (averaging twice changes nothing, so this is always right), and so are those of all later steps of
that model, whose reducer is taken out. So it is, too, where the script moves or casts parameters: torch makes the
nodes again then on which the reducer's hooks sit.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel

from .. import guard, single_samples
from ..precision import Precision
from ..state import GradientState, PartialState
from .averaging import ParameterSet, mark_of, share_tensors, sparse_of
from .reentrant import Additions
from .unused import complete_reduction
from .wrapped import ScriptAttributes, walkable

# The argument has a new name since torch 2.13.
SYNC_IN_FORWARD = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)

# Looked at for every part of a model in every step, which takes less time without a frame of Python for each.
_is_trained = operator.attrgetter("requires_grad")
_values_of = operator.methodcaller("values")


class DistributedModel(ScriptAttributes, DistributedDataParallel):
    """A model on several ranks. Attributes that DDP does not have are those of the script's module.

    Args:
        module: the placed model.
        precision: of its forward.
        kwargs: for DDP.
    """

    def __init__(self, module: torch.nn.Module, precision: Precision, kwargs: dict[str, Any]) -> None:
        super().__init__(module, **kwargs)
        self._precision = precision
        self._look_over(module)
        # Parameters that came after it was wrapped, and that ranks have not shared yet.
        self._new: list[torch.Tensor] = []
        trained = (p for p in self._known if p.requires_grad)
        sparse = sparse_of(module)
        self._trained = ParameterSet(trained, type(module).__name__, sparse)
        ignored = {id(p) for n, p in module.named_parameters() if n in self.parameters_to_ignore}
        # What the reducer reduces, in its order, whatever is frozen later.
        self._reduced = [p for p in self._trained.parameters if id(p) not in ignored]
        # Whether what a communication hook averages keeps the sign of a zero.
        self.keeps_zero_signs = True
        # A static graph is learned in a backward that averages: where the first batches of an accumulation window do
        # not, the very first one does all the same, and its result is averaged again with the rest.
        self.learns_graph = bool(self.static_graph)
        self._route: Callable[..., Any] | None = None
        # The module, compiled. No part of this one: weights and modules of it are those of the script's.
        self._compiled: torch.nn.Module | None = None
        # Whether forward or such a method is running. A backward is then not DDP's: no forward of DDP's has ended.
        self._running = False
        self._flat = False
        # Whether a forward has readied the reducer since it last averaged.
        self._armed = False
        self._sync_next = False
        # Whether gradients of it were averaged since ranks last compared its weights.
        self.averaged = False
        # Counts of gradients, where checkpoints within a backward may add to one several times.
        self._additions: Additions | None = None
        # Whether a forward has looked for new parts since the last backward.
        self._looked_over = False
        self._edges = list(map(get_gradient_edge, self._reduced))
        self._hooked = self._accumulators()
        PartialState().group_holders.add(self)
        if sparse:
            # The reducer reduces sparse gradients where they are: what it has begun cannot be averaged again.
            self.leave_reducer()
        self.complete()

    # What scripts see

    @property
    def dim(self) -> Any:
        """That of the script's module, where it has one: DDP's is of no use here, and models often have a `dim`."""
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
        """That of the script's module, without a prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """That of the script's module, without a prefix."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the script's module, without a prefix."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the script's module, without a prefix."""
        return self.module.named_buffers(*args, **kwargs)

    def train(self, mode: bool = True) -> DistributedModel:
        """As torch's; a layer frozen or thawed since is taken into account from here on."""
        super().train(mode)
        self.follow_parameters()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and self.module.training:
            self._follow_new_parts()
            self._looked_over = True
        if self._flat:
            return self._run_ddp_forward(*args, **kwargs)
        self._running = True
        try:
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            explained = guard.explained(error, f"the forward pass of {type(self.module).__name__}")
            if explained is error:
                raise
            raise explained from error
        except ValueError as error:
            single = single_samples.explained(error)
            if single is error:
                raise
            raise single from error
        finally:
            self._running = False

    def _run_ddp_forward(self, *args: Any, **kwargs: Any) -> Any:
        self._armed = self._armed or (torch.is_grad_enabled() and self.require_backward_grad_sync)
        GradientState().loaders.meet((args, kwargs))
        run = self._route or self._run_module
        # What the method calls itself must not be taken for another routed call.
        self._route = None
        # torch's compiler takes no buckets smaller than torch's first one.
        if self._flat or self.bucket_bytes_cap < dist._DEFAULT_FIRST_BUCKET_BYTES:  # type: ignore[attr-defined]
            return run(*args, **kwargs)
        # By this a compiler sees where buckets end, and cuts its graph there: they are reduced during the backward.
        with self._inside_ddp_forward():
            return run(*args, **kwargs)

    def _run_module(self, *args: Any, **kwargs: Any) -> Any:
        run = self.module if self._compiled is None else self._compiled
        return self._precision.run(run, *args, **kwargs)

    def compile_module(self, arguments: dict[str, Any]) -> None:
        """Run the module compiled from now on, and what is around it as it is.

        A compiler that is given this wrapper cuts its forward into half a dozen graphs, each with guards of its own in
        every step.

        Args:
            arguments: those of `torch.compile`.
        """
        self.__dict__["_compiled"] = torch.compile(self.module, **arguments)

    # Averaging

    def follow_parameters(self) -> None:
        """Average the gradients of exactly the parameters that are trained now."""
        trained, known = self._trained, {id(p) for p in self._known}
        self._look_over(self.module)
        self._new += [p for p in self._known if id(p) not in known]
        now: list[torch.Tensor] = [p for p in self._known if p.requires_grad]
        if len(now) != len(trained.parameters) or any(
            a is not b for a, b in zip(now, trained.parameters, strict=True)
        ):
            trained.parameters = now
            self.leave_reducer()

    def _follow_new_parts(self) -> None:
        """Take in what the script has put in the place of something, where all ranks come by."""
        if self._is_replaced():
            self.follow_parameters()
        if self._new and self.process_group is not None:
            # Each rank has drawn different numbers.
            new, self._new = [p.data for p in self._new], []
            with guard.collective("weights of a part that is new", self._trained.stated, *new):
                share_tensors(new, self.process_group)

    def _look_over(self, module: torch.nn.Module) -> None:
        """Note what the module is made of. Walking over all of it in every step would cost more than the rest of it."""
        with walkable(module):
            modules, self._known = list(module.modules()), list(module.parameters())
        self._buffer_homes = [m._buffers for m in modules if m._buffers]
        self._pattern = list(map(_is_trained, self._known))
        self._homes: list[dict[str, Any]] = [
            home for m in modules for home in (m._parameters, m._modules) if home
        ]
        self._parts = list(chain.from_iterable(map(_values_of, self._homes)))

    def _is_changed(self) -> bool:
        """Whether a weight was frozen, thawed or replaced, or a layer was, since that was looked at."""
        # What is put in the place of something after the forward has no part in this backward.
        looked = self._looked_over
        self.__dict__["_looked_over"] = False
        if self._pattern != list(map(_is_trained, self._known)):
            return True
        return not looked and self._is_replaced()

    def _is_replaced(self) -> bool:
        """Whether a weight or a layer was, since that was looked at."""
        if sum(map(len, self._homes)) != len(self._parts):
            return True
        return not all(map(operator.is_, self._parts, chain.from_iterable(map(_values_of, self._homes))))

    def watch_additions(self) -> None:
        """Look from now on whether a backward adds to one gradient several times. A static graph allows for that."""
        if self._additions is None and not (self._flat or self.static_graph):
            self._additions = Additions(self._reduced)

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
        with contextlib.nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
            return [_node_of(p) for p in self._trained.parameters[:count]]

    def _is_moved(self) -> bool:
        """Whether parameters were on another device, or of another type, since the reducer hung its hooks on them."""
        if len(self._hooked) == 1 and torch.is_grad_enabled():
            return _node_of(self._trained.parameters[0]) is not self._hooked[0]
        return any(a is not b for a, b in zip(self._accumulators(), self._hooked, strict=False))

    def __getstate__(self) -> dict[str, Any]:
        # A copy has a separate reducer; nodes of the graph cannot be copied.
        return {**super().__getstate__(), "_hooked": [], "_edges": [], "_additions": None, "_compiled": None}  # type: ignore[no-untyped-call]

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
        """Ranks that ran out of batches answer DDP's all-reduces, no others."""
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
        if self._additions is not None:
            self._additions.begin()
        if self._running:
            self.leave_reducer()
        if self._armed and not self._flat and self._is_moved():
            # An error where other ranks have not moved theirs, and wait in this backward.
            self._trained.stated += ", whose parameters this rank has moved or cast"
            self.leave_reducer()
        if self._armed and not self._flat and not self.find_unused_parameters:
            # If the reducer completes, every gradient has changed: one mark is enough.
            return (mark_of(self._trained.parameters[0]),)
        return tuple(self._trained.snapshot())

    def complete_reduction(self, before: tuple[Any, ...] | None) -> bool:
        """Average what the reducer still waits for, as other ranks may have its gradients; returns whether it did."""
        if before is None or self._sync_next or self._flat or not self._armed:
            return False
        # Nearly always there is nothing left, which the reducer reports at once.
        try:
            self.reducer._check_reducer_finalized()
            return False
        except RuntimeError:
            complete_reduction(self.reducer, self._reduced, self._edges, self.keeps_zero_signs)
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
            self.__dict__["_armed"] = False
            return True
        if self._additions is not None and self._additions.came_again and not self._flat:
            # What came after the reducer's mean is local to the rank; the mean of both over ranks is right.
            self.leave_reducer()
            self._trained.average()
            return True
        if len(before) == 1:
            touched = bool(before[0] != mark_of(self._trained.parameters[0]))
        else:
            touched = any(old != mark_of(p) for old, p in zip(before, self._trained.parameters, strict=False))
        if self._armed and not self._flat:
            self.__dict__["_armed"] = not touched
        elif touched:
            self.leave_reducer()
            self._trained.average()
        return touched

    def share_buffers(self) -> None:
        """Give every rank rank 0's buffers, past the version counters: a graph still to be walked may hold them."""
        if not self._buffer_homes:
            return
        own = [b.data for home in self._buffer_homes for b in home.values() if b is not None]
        if own:
            share_tensors(own, self.process_group, self.broadcast_bucket_size)


def _node_of(parameter: torch.Tensor) -> Any:
    """The node that adds to a parameter's gradient: what `get_gradient_edge` finds, in a fraction of its time."""
    view: Any = parameter.view_as(parameter)
    return view.grad_fn.next_functions[0][0]
