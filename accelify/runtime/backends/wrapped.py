"""What the engines that wrap the script's model, and average by collectives, have in common."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .. import guard
from .base import Backend

# Kinds of values that are no part of a model, whatever they are set in place of.
_PLAIN = frozenset((bool, int, float, str, types.NoneType, types.MethodType))


# Methods of torch's by which modules are walked over.
_WALKS = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children named_children".split()
)


@contextlib.contextmanager
def walkable(model: torch.nn.Module) -> Iterator[None]:
    """Without the attributes of modules that hide torch's walks over them: `self.parameters = list(net.parameters())`.

    Args:
        model: the script's, which has them again afterwards.
    """
    waiting, hiding = [model], []
    seen = {id(model)}
    while waiting:
        module = waiting.pop()
        if found := _WALKS & vars(module).keys():
            hiding.append((vars(module), {name: vars(module).pop(name) for name in found}))
        parts = [part for part in module._modules.values() if part is not None and id(part) not in seen]
        seen.update(map(id, parts))
        waiting += parts
    try:
        yield
    finally:
        for own, found_in in hiding:
            own.update(found_in)


class ScriptAttributes(torch.nn.Module):
    """A wrapper whose attributes are the script's module's, where it has none of that name; methods are `_routed`.

    Once the wrapper is `complete`, what the script sets on it goes to the module as well, where that has the name, and
    its parts are the module's: a walk over them by name (pruning, summaries) finds the names of the script.
    """

    def complete(self) -> None:
        """From now on names of the module that are set are the script's doing."""
        self.__dict__["_complete"] = True

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file that the model is written to, in whatever container, contains the script's module: no process alone
        could load a wrapper, which has to have its group."""
        del protocol  # `__reduce_ex__(2)` insists on the class of the object
        return self.module.__reduce_ex__(1)

    def __repr__(self) -> str:
        """That of the script's module: scripts print their models, and write them into logs."""
        return repr(self.module)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A copy in memory goes on to be what it was, which copying by __reduce_ex__ would not give.
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        return made

    def follow_parameters(self) -> None:
        """Train exactly the parameters that the module has now."""

    @property
    def _modules(self) -> Any:
        own = self.__dict__["_modules"]
        return own["module"]._modules if "_complete" in self.__dict__ else own

    @_modules.setter
    def _modules(self, modules: dict[str, Any]) -> None:
        self.__dict__["_modules"] = modules

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """The script's module and its parts, without a prefix."""
        return self.module.named_modules(*args, **kwargs)

    def get_submodule(self, target: str) -> Any:
        """A part of the script's module, by the script's name for it."""
        return self.module.get_submodule(target)

    def get_parameter(self, target: str) -> Any:
        """A weight of the script's module, by the script's name for it."""
        return self.module.get_parameter(target)

    def get_buffer(self, target: str) -> Any:
        """A buffer of the script's module, by the script's name for it."""
        return self.module.get_buffer(target)

    # torch's methods go through the parts, and would leave the module itself out.

    def train(self, mode: bool = True) -> Any:
        """As torch's."""
        self.training = mode
        self.module.train(mode)
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> Any:
        """As torch's, to the script's module and its parts."""
        self.module.apply(fn)
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.module._apply(*args, **kwargs)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.module._load_from_state_dict(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if name in own and type(value) in _PLAIN:
            # torch would look first whether it is a part of a model, several times in every step.
            own[name] = value
            return
        inner = own.get("_modules", {}).get("module")
        if inner is not None and "_complete" in own and name not in own and not hasattr(type(self), name):
            if any(
                name in contained
                for contained in (vars(inner), inner._modules, inner._parameters, inner._buffers)
            ):
                setattr(inner, name, value)
                if isinstance(value, (torch.nn.Module, torch.nn.Parameter)):
                    self.follow_parameters()
                return
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module" or name.startswith("__") or "module" not in self.__dict__.get("_modules", {}):
                raise
        value = getattr(self.module, name)
        if isinstance(value, types.MethodType) and value.__self__ is self.module:
            return self._routed(value)
        return value

    def __getitem__(self, index: Any) -> Any:
        # A sequence of parts is one in a copy of the wrapper, too: `AveragedModel(model).module[0]`.
        return self.module[index]


class AveragingBackend(Backend):
    """An engine on several ranks of one process group."""

    def shared_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def shared() -> Any:
            loss = closure()
            if not isinstance(loss, torch.Tensor):
                return loss
            total = loss.detach() * self.last_scale
            with guard.collective("average of a closure's loss", total):
                dist.all_reduce(total)
            return total / self.world_size

        return shared
