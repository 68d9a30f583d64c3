"""The prepared optimizer: steps only when gradients are complete, and knows when a step was skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .accumulation import check_step
from .state import GradientState

if TYPE_CHECKING:
    from .backends.base import Backend
    from .precision import Precision


class AcceleratedOptimizer(torch.optim.Optimizer):
    """Wraps a torch optimizer.

    Inside an accumulation window that is not at its end, `step` and `zero_grad` do nothing.

    Args:
        optimizer: the script's.
        precision: with a gradient scaler, steps go through it.
        engine: whose step and clearing of gradients these are.
    """

    # torch's __init__ is left out on purpose: groups and state are the wrapped optimizer's.
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        precision: Precision | None = None,
        engine: Backend | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.gradient_state = GradientState()
        self.scaler = precision.scaler if precision is not None else None
        self.engine = engine
        self._skipped = False
        self._stepped = False
        # Whether gradients overflowed, as the device reports it where it leaves the step out itself (fused optimizers).
        self._overflowed: torch.Tensor | None = None
        if self.scaler is not None:
            optimizer.register_step_post_hook(self._note_step)

    def _note_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped = True
        self._overflowed = getattr(optimizer, "found_inf", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "optimizer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["optimizer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """A switch of an optimizer class of the script is set where its code reads it."""
        own = self.__dict__
        if name in own:
            own[name] = value
            return
        inner = own.get("optimizer")
        if inner is not None and name in vars(inner) and not hasattr(type(self), name):
            setattr(inner, name, value)
        else:
            super().__setattr__(name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The optimizer's class: scripts test its type, and make it again by `old.__class__(parameters, lr=...)`."""
        return type(self.__dict__.get("optimizer", self))

    def __repr__(self) -> str:
        return repr(self.optimizer)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file that the whole optimizer is written to contains the script's: it loads without this package."""
        del protocol  # `__reduce_ex__(2)` insists on the class of the object
        return self.optimizer.__reduce_ex__(1)

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = value

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self.optimizer.defaults = value

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's state, whole, the same as without the wrapper; every rank has to ask."""
        return (
            self.optimizer.state_dict()
            if self.engine is None
            else self.engine.optimizer_state_dict(self.optimizer)
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's."""
        if self.engine is None:
            self.optimizer.load_state_dict(state_dict)
        else:
            self.engine.load_optimizer_state_dict(self.optimizer, state_dict)

    def train(self) -> None:
        """For optimizers with a training mode."""
        if hasattr(self.optimizer, "train"):
            self.optimizer.train()

    def eval(self) -> None:
        """For optimizers with an evaluation mode."""
        if hasattr(self.optimizer, "eval"):
            self.optimizer.eval()

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was left out because gradients in fp16 overflowed."""
        if self._overflowed is not None:
            # Asking waits for the device, which nothing else does after such a step.
            self._skipped, self._overflowed = bool(self._overflowed), None
        return self._skipped

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's, at the end of an accumulation window only."""
        if self.gradient_state.sync_gradients:
            if self.engine is None:
                self.optimizer.zero_grad(set_to_none=set_to_none)
            else:
                self.engine.zero_grad(self.optimizer, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's, at the end of an accumulation window only.

        Args:
            closure: evaluates the model again; the loss it returns is averaged over ranks, so that every rank
                takes the same decisions.
        """
        state = self.gradient_state
        if not state.sync_gradients:
            return None
        if state.plugin.num_steps > 1 and not state.window.in_use:
            check_step(state)
        if self.scaler is not None:
            return self._scaled_step(closure)
        if self.engine is None:
            return self.optimizer.step(closure) if closure is not None else self.optimizer.step()
        result = self.engine.step(self.optimizer, closure)
        self._skipped = self.engine.step_was_skipped(self.optimizer)
        return result

    def _scaled_step(self, closure: Callable[[], Any] | None) -> Any:
        assert self.scaler is not None
        if closure is not None:
            raise ValueError(
                "an optimizer with a closure cannot run in fp16, which scales the loss; use bf16"
            )
        self._stepped, self._overflowed = False, None
        result = self.scaler.step(self.optimizer)
        self._skipped = not self._stepped
        self.scaler.update_due = True
        return result


def inner_optimizers(
    item: Any, models: list[torch.nn.Module], engine: Backend
) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """The attributes of an object that steps and clears gradients as an optimizer, and the optimizers in them.

    Args:
        item: what the script uses as its optimizer.
        models: the prepared ones. An optimizer of copies of their weights is left out: the script fills them itself.
        engine: the run's.
    """
    if isinstance(item, type) or not (hasattr(item, "step") and hasattr(item, "zero_grad")):
        return
    own = {id(p) for model in models for p in torch.nn.Module.parameters(model)}
    for name, inner in list(getattr(item, "__dict__", {}).items()):
        if isinstance(inner, torch.optim.Optimizer):
            engine.adopt(inner)
            if not own.isdisjoint(map(id, engine.parameters_of(inner))):
                yield name, inner


def trains_the_same(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Whether two optimizers hold the same parameters: the later takes the other's place, whose state would stay."""
    parameters = [{id(p) for group in o.param_groups for p in group["params"]} for o in (one, other)]
    return parameters[0] == parameters[1]


def follow_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Put the state of an optimizer where its parameters are now.

    A script that goes on from a checkpoint loads the state before prepare, when the model is not on its device yet.
    """
    for group in optimizer.param_groups:
        counts_there = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for key, value in state.items() if isinstance(state, dict) else ():
                # torch keeps the number of steps on the host, but for what runs wholly on the device.
                if not isinstance(value, torch.Tensor) or (key == "step" and not counts_there):
                    continue
                if value.device != parameter.device and parameter.device.type != "meta":
                    state[key] = value.to(parameter.device)


def trains_some(
    optimizer: torch.optim.Optimizer,
    count: int,
    loose: int,
    models: list[torch.nn.Module],
    one_of_several: bool,
) -> None:
    """Look that an optimizer trains something.

    Args:
        optimizer: it.
        count: how many parameters it has.
        loose: how many of them belong to no prepared model.
        models: the prepared models.
        one_of_several: whether others have been prepared, beside which one may have nothing to do.

    Raises:
        ValueError: it holds no parameters, or several of which none is of the models.
    """
    names = ", ".join(type(model).__name__ for model in models)
    kind = type(optimizer).__name__
    if not count and not one_of_several:
        raise ValueError(
            f"the optimizer {kind} holds no parameters at all, so that nothing of {names} would be trained: where it "
            "is made of weights chosen by name, compare with the names that the model has now (without `module.`)"
        )
    # One alone can be a number that the script learns beside its models, such as a temperature.
    if loose == count > 1:
        raise ValueError(
            f"the optimizer {kind} holds none of the parameters of the prepared model {names}: "
            "make the optimizer from the model that you prepare"
        )
