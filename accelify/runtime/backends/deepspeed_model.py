"""The script's model under DeepSpeed: what `prepare` returns in its place."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .deepspeed_weights import is_divided
from .wrapped import ScriptAttributes

if TYPE_CHECKING:
    from .deepspeed import DeepSpeedBackend
    from .deepspeed_training import Training


class DeepSpeedModel(ScriptAttributes):
    """A model whose engine is made when its optimizer comes. Attributes it does not have are the script's module's.

    Args:
        module: the placed model.
        backend: whose model it is.
    """

    def __init__(self, module: torch.nn.Module, backend: DeepSpeedBackend) -> None:
        super().__init__()
        self.module = module
        # Not as submodules: the engine is a module around the same one.
        self.__dict__["backend"] = backend
        self.__dict__["training_state"] = None
        module.register_state_dict_post_hook(self._hook(DeepSpeedModel._complete_state))  # type: ignore[no-untyped-call]
        module.register_load_state_dict_pre_hook(self._hook(DeepSpeedModel._before_loading))  # type: ignore[no-untyped-call]
        module.register_load_state_dict_post_hook(self._hook(DeepSpeedModel._after_loading))  # type: ignore[no-untyped-call]
        self.complete()

    @property
    def training_of(self) -> Training | None:
        """What trains this model, None as long as no optimizer of it was prepared."""
        return self.__dict__["training_state"]  # type: ignore[no-any-return]

    def _routed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the script's module that, with gradients on, runs as a forward of the engine does."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            state = self.training_of
            if state is None or not torch.is_grad_enabled() or not self.module.training:
                return method(*args, **kwargs)
            own = self.module.__dict__
            before = own.get("forward")

            def once(*args: Any, **kwargs: Any) -> Any:
                # What the method calls itself is the module's forward again.
                restore()
                return method(*args, **kwargs)

            def restore() -> None:
                if before is None:
                    own.pop("forward", None)
                else:
                    own["forward"] = before

            own["forward"] = once
            try:
                return self.backend.precision.run(state.engine, *args, **kwargs)
            finally:
                restore()

        return call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = self.training_of
        return self.backend.precision.run(self.module if state is None else state.engine, *args, **kwargs)

    def train(self, mode: bool = True) -> DeepSpeedModel:
        """As torch's."""
        super().train(mode)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Also of gradients that DeepSpeed has put elsewhere."""
        if self.training_of is not None:
            self.training_of.drop_gradients()
        super().zero_grad(set_to_none)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of the script's module, without a prefix; whole on every rank, and every rank must call."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Whole weights under the script's names; every rank must call."""
        if assign:
            raise ValueError(
                "load_state_dict(assign=True): DeepSpeed's weights are written in place; leave it out"
            )
        return self.backend.load_state_dict(self, dict(state_dict), strict)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the script's module, without a prefix."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the script's module, without a prefix."""
        return self.module.named_buffers(*args, **kwargs)

    # What the script does with its module

    def _hook(self, method: Callable[..., None]) -> Callable[..., None]:
        """A plain function, so that the module can still be copied; a copy's hook does nothing."""
        known = weakref.ref(self)

        def hook(module: torch.nn.Module, *rest: Any) -> None:
            own = known()
            if own is not None and own.module is module:
                method(own, module, *rest)

        return hook

    def _complete_state(self, module: torch.nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
        """Combine weights that are divided between ranks, so that the script's saving is right."""
        if self.training_of is None or self.training_of.stage < 3 or self.backend.moving_shards:
            return
        own = {prefix + n: p for n, p in module.named_parameters(remove_duplicate=False) if is_divided(p)}
        if not any(n in state and isinstance(state[n], torch.nn.Parameter) for n in own):
            whole = self.backend.state_dict(self)
            state.update({n: whole[n.removeprefix(prefix)] for n in own if n in state})

    def _before_loading(self, module: torch.nn.Module, *_: Any) -> None:
        if self.training_of is not None and self.training_of.stage == 3 and not self.backend.moving_shards:
            raise ValueError(
                f"{type(module).__name__}.load_state_dict: its weights are divided between ranks (ZeRO 3); call "
                "load_state_dict of what prepare gave back, or load them before prepare"
            )

    def _after_loading(self, module: torch.nn.Module, _: Any) -> None:
        """The optimizer works on copies of the weights, which would undo what was loaded."""
        state = self.training_of
        if state is None or state.stage == 3 or self.backend.moving_shards:
            return
        refresh = getattr(state.engine.optimizer, "refresh_fp32_params", None)
        if refresh is not None:
            refresh()
