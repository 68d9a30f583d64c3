"""What scripts see of a sharded model: whole weights in and out, and its methods besides `forward`."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from .. import guard, single_samples
from ..nested import leaves, map_leaves
from ..precision import Precision
from .dtensors import divided_like, whole


class Sharding:
    """What belongs to one sharded model.

    Attributes:
        depth: passes of the model that are running, one in another.
        deferred: gradients stay on their ranks (`no_sync`).
        sync_next: the next backward averages all the same.
        methods: of the script's class, run with the weights gathered.
        drops_whole: `state_dict` puts weights together for another rank and keeps none of them.
    """

    def __init__(self, name: str, precision: Precision, methods: dict[str, Callable[..., Any]]) -> None:
        self.name = name
        self.precision = precision
        self.methods = methods
        self.depth = 0
        self.deferred = 0
        self.sync_next = False
        self.syncs = True
        self.drops_whole = False

    @contextlib.contextmanager
    def running(self, stated: str) -> Iterator[None]:
        """A pass, in which the model's methods call each other as they are."""
        self.depth += 1
        try:
            with guard.backward(stated):
                yield
        finally:
            self.depth -= 1


class ShardedModel(nn.Module):
    """Mixed into the class of a model whose parameters are divided between ranks."""

    _sharding: Sharding

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._sharding
        if state.depth or self._compiled_call_impl is not None:
            # Compilers' workers keep a rank waiting as well as other ranks do.
            output = super().__call__(*args, **kwargs)
        else:
            with state.running(f"the forward pass of {state.name}"):
                output = super().__call__(*args, **kwargs)
        if not state.depth and not torch.is_grad_enabled() and isinstance(self, FSDPModule):
            # No backward will free the outermost unit, and scripts would see its whole weights as parameters.
            self.reshard()
        return output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # torch loses its hook, and with it the gradients, where a script changes an output in place that is a view.
        try:
            output = super().forward(*args, **kwargs)
        except ValueError as error:
            single = single_samples.explained(error)
            if single is error:
                raise
            raise single from error
        return map_leaves(_no_view, output) if any(map(_is_trained_view, leaves(output))) else output

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's, with whole weights on the CPU; every rank has to call it."""
        guard.enter(f"state_dict of {self._sharding.name}")
        keep = kwargs.pop("keep_vars", args[2] if len(args) > 2 else False)
        found = super().state_dict(*args[:2], **kwargs, keep_vars=True)
        seen: dict[int, torch.Tensor] = {}
        for name, tensor in found.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            if isinstance(tensor, DTensor):
                if id(tensor) not in seen:
                    gathered = whole(tensor).detach()
                    # A rank that keeps none has one of them at a time.
                    seen[id(tensor)] = gathered.new_empty(0) if self._sharding.drops_whole else gathered.cpu()
                found[name] = seen[id(tensor)]
            elif not keep:
                found[name] = tensor.detach()
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """As torch's, from whole weights, which have to be the same on every rank; `assign` copies all the same."""
        own = nn.Module.state_dict(self, keep_vars=True)
        given = dict(state_dict)
        for name, tensor in own.items():
            value = given.get(name)
            if (
                isinstance(tensor, DTensor)
                and isinstance(value, torch.Tensor)
                and value.shape == tensor.shape
            ):
                given[name] = divided_like(value, tensor)
        return super().load_state_dict(given, strict=strict)

    def _run_method(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        state = self._sharding
        gathered = state.methods.get(name)
        if state.depth or gathered is None:
            return function(self, *args, **kwargs)
        if not any(isinstance(x, torch.Tensor) for x in leaves((args, kwargs))):
            # Many such methods use no weights, and may run on one rank alone.
            random = torch.get_rng_state()
            try:
                return function(self, *args, **kwargs)
            except RuntimeError as error:
                if "DTensor" not in str(error):
                    raise
                torch.set_rng_state(random)
        guard.enter(f"call of {state.name}.{name}")
        with state.running(f"{state.name}.{name}"):
            output = state.precision.run(gathered, *args, **kwargs)
        if not torch.is_grad_enabled() and isinstance(self, FSDPModule):
            self.reshard()
        return output


def _is_trained_view(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf._is_view()


def _no_view(leaf: Any) -> Any:
    return leaf.clone() if _is_trained_view(leaf) else leaf


def sharding_of(model: nn.Module) -> Sharding | None:
    """What is known of a sharded model, None for another."""
    model = getattr(model, "_orig_mod", model)
    return model._sharding if isinstance(model, ShardedModel) else None


def make_sharded(model: nn.Module, precision: Precision) -> Sharding:
    """Let a model whose parameters were divided behave for scripts like the one it was."""
    own = type(model)
    script = next(c for c in own.__mro__ if c is not own or not issubclass(c, FSDPModule))
    if isinstance(model, FSDPModule):
        script = own.__mro__[own.__mro__.index(FSDPModule) + 1]
    gathered: dict[str, Callable[..., Any]] = {}
    if isinstance(model, FSDPModule):
        for name in _own_methods(script):
            register_fsdp_forward_method(model, name)
            gathered[name] = model.__dict__.pop(name)
    names = {"__module__": script.__module__, "__doc__": script.__doc__, "__new__": _new_of(script)}
    wrappers = {name: _routed(name, getattr(script, name)) for name in gathered}
    model.__class__ = type(own.__name__, (ShardedModel, own), {**names, **wrappers})
    sharding = Sharding(script.__name__, precision, gathered)
    model.__dict__["_sharding"] = sharding
    return sharding


def _own_methods(script: type) -> list[str]:
    """Names of the methods that the script's classes define, without those of torch's modules."""
    found: dict[str, None] = {}
    for kind in script.__mro__:
        if kind.__module__.split(".")[0] == "torch" or kind is object:
            continue
        for name, value in vars(kind).items():
            known = hasattr(nn.Module, name) or (name.startswith("__") and name.endswith("__"))
            if isinstance(value, types.FunctionType) and not known and name != "forward":
                found[name] = None
    return list(found)


def _routed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: ShardedModel, *args: Any, **kwargs: Any) -> Any:
        return self._run_method(name, function, args, kwargs)

    return call


def _new_of(script: type) -> Callable[..., Any]:
    """What `type(model)(...)` makes, as slicing a Sequential does: an ordinary module of the script's class."""

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        made: Any = script.__new__(script)  # type: ignore[call-overload]
        made.__init__(*args, **kwargs)
        return made

    return new
