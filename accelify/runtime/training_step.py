"""The Accelerator's part in a training step: backward passes, accumulation windows, clipping."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from . import collectives, observers
from .accumulation import divisor_now, enter_step, loss_divisor
from .exchange import Exchange
from .optimizer import AcceleratedOptimizer
from .plugins import AutocastKwargs, ProfileKwargs
from .precision import Precision

if TYPE_CHECKING:
    from .accelerator import Accelerator
    from .data.loaders import DataLoaderShard


class TrainingStep(Exchange):
    """The part of the Accelerator that trains."""

    precision: Precision
    profile_handler: ProfileKwargs | None
    _models: list[torch.nn.Module]
    _optimizers: Iterable[AcceleratedOptimizer]
    _modelless: list[torch.optim.Optimizer]
    _dataloaders: list[DataLoaderShard]
    # Weights of the losses of an open window, for `backward(weight=)`.
    _tokens: float
    # Whether nothing but torch's backward is left to do.
    _plain: bool

    def backward(
        self,
        loss: torch.Tensor,
        *,
        reduction: str = "mean",
        weight: float | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        """The backward pass, in place of `loss.backward()`.

        Args:
            loss: this rank's loss.
            reduction: "mean" for a loss averaged over the batch, "sum" for one summed over it. Each rank's share
                is weighed so that the update is that of the whole batch.
            weight: weigh by this instead, such as the number of tokens the loss is the mean of: the gradient
                is the mean over all tokens of the accumulation window on all ranks.
            **kwargs: for `torch.Tensor.backward`: gradient, retain_graph, create_graph, inputs.

        Raises:
            ValueError: for another reduction.
            RuntimeError: the script leaves batches out by itself after `load_state`, which has done so.
        """
        if self.gradient_state.resumed is not None:
            self.gradient_state.check_resumed()
        if self._plain and reduction in ("mean", "sum") and not observers.backward_observers:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            return
        if weight is not None:
            self._weighted_backward(loss, float(weight), kwargs)
            return
        factor = self._share_weight(reduction)
        divisor = loss_divisor(self.gradient_state)
        if observers.backward_observers:
            self._observe(loss, factor / divisor)
        self.backend.last_scale = factor / divisor
        if factor != 1.0:
            loss = loss * factor
        if divisor != 1:
            loss = loss / divisor
        self._scaled_backward(loss, kwargs)

    def _share_weight(self, reduction: str) -> float:
        if reduction not in ("mean", "sum"):
            raise ValueError(f'reduction must be "mean" or "sum", not {reduction!r}')
        ranks, rank = self.process.data_ranks, self.process.data_rank
        if ranks == 1:
            return 1.0
        shares = self._trained_shares()
        if reduction == "mean":
            return 1.0 if shares is None else shares.weight(rank)
        if shares is not None and not shares.sizes[rank]:
            return 0.0
        return float(ranks)

    def _observe(self, loss: torch.Tensor, scale: float, weight: float | None = None) -> None:
        self.gradient_state.loss_weight = weight
        for observer in observers.backward_observers:
            observer(loss.detach(), scale, cast("Accelerator", self))

    def _scaled_backward(self, loss: torch.Tensor, kwargs: dict[str, Any]) -> None:
        if self._modelless:
            self._train_parameters_of_no_model()
        if self.precision.scaler is not None:
            loss = self.precision.scaler.scale(loss)
        self.backend.backward(loss, self._averages_now(), **kwargs)

    def _averages_now(self) -> bool:
        state = self.gradient_state
        return state.sync_gradients or state.plugin.sync_each_batch

    def _weighted_backward(self, loss: torch.Tensor, weight: float, kwargs: dict[str, Any]) -> None:
        """Gradients are summed as weight * gradient over the window, and divided by all weights at its end."""
        shares = self._trained_shares()
        if shares is not None and not shares.sizes[self.process.data_rank]:
            weight = 0.0
        self._tokens += weight
        if observers.backward_observers:
            self._observe(loss, 1 / divisor_now(self.gradient_state), weight)
        if not self.gradient_state.sync_gradients:
            self.backend.last_scale = weight
            self._scaled_backward(loss * weight, kwargs)
            return
        total, self._tokens = collectives.reduce(self._tokens, "sum"), 0.0
        factor = self.process.data_ranks / total if total else 0.0
        self.backend.last_scale = weight * factor
        if self.gradient_state.window.step > 1:
            self.backend.scale_gradients(self._trained_parameters(), factor)
        scale = weight * factor
        self._scaled_backward(loss if scale == 1.0 else loss * scale, kwargs)

    def _trained_parameters(self) -> list[torch.Tensor]:
        found = {id(p): p for o in self._optimizers for p in self.backend.parameters_of(o.optimizer)}
        return list(found.values())

    def autocast(
        self, autocast_handler: AutocastKwargs | None = None
    ) -> contextlib.AbstractContextManager[Any]:
        """A region in mixed precision; in full precision it does nothing. Prepared models in it run as they are."""
        if not self.precision.is_mixed:
            return contextlib.nullcontext()
        return self.precision.script_region(autocast_handler)

    def profile(self, profile_handler: ProfileKwargs | None = None) -> contextlib.AbstractContextManager[Any]:
        """A `torch.profiler.profile` region; see ProfileKwargs."""
        from .helpers import profiled

        return profiled(profile_handler or self.profile_handler or ProfileKwargs())

    @contextlib.contextmanager
    def accumulate(self, *models: torch.nn.Module) -> Iterator[None]:
        """One batch of an accumulation window: in it, optimizers step at the window's end only. Regions in one another,
        as with one for each model, are of the same batch.

        Args:
            *models: those whose gradients are averaged over ranks at the window's end only; default: all.
        """
        window = self.gradient_state.window
        if window.depth == 0:
            enter_step(self.gradient_state)
        if window.depth == 0 and window.correction != 1.0 and not self._tokens:
            self.backend.scale_gradients(self._trained_parameters(), window.correction)
        state = self.gradient_state
        window.depth += 1
        try:
            if state.sync_gradients or state.plugin.sync_each_batch:
                yield
                return
            with self.backend.no_sync(models or self._models):
                yield
        finally:
            window.depth -= 1

    @contextlib.contextmanager
    def no_sync(self, model: torch.nn.Module | None = None) -> Iterator[None]:
        """A region whose backward passes leave the model's gradients on their ranks."""
        with self.backend.no_sync([model] if model is not None else self._models):
            yield

    @contextlib.contextmanager
    def trigger_sync_in_backward(self, model: torch.nn.Module) -> Iterator[None]:
        """Average gradients in the next backward, although the forward ran under `no_sync`."""
        self.backend.sync_next(model)
        yield

    @contextlib.contextmanager
    def join_uneven_inputs(self, joinables: list[Any], even_batches: bool | None = None) -> Iterator[None]:
        """A region in which ranks may run out of batches at different times.

        Args:
            joinables: the prepared models that are trained in it.
            even_batches: overrides this setting for the prepared loaders.
        """
        shards = [d.shard for d in self._dataloaders if hasattr(d.shard, "even_batches")]
        if even_batches is not None and len(shards) < len(self._dataloaders):
            warnings.warn(
                "Overriding even_batches is only supported for map-style datasets; some prepared loaders have others",
                stacklevel=3,
            )
        before = [s.even_batches for s in shards]
        for shard in shards if even_batches is not None else []:
            shard.even_batches = even_batches
        try:
            with self.backend.join(joinables):
                yield
        finally:
            for shard, value in zip(shards, before, strict=True):
                shard.even_batches = value

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide gradients by the loss scale of fp16, at the end of a window; otherwise nothing.

        Args:
            optimizer: one or several; default: all prepared ones.
        """
        scaler = self.precision.scaler
        if scaler is None or not self.gradient_state.sync_gradients:
            return
        chosen = list(self._optimizers) if optimizer is None else optimizer
        for opt in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            inner = opt.optimizer if isinstance(opt, AcceleratedOptimizer) else opt
            state = scaler._per_optimizer_states[id(inner)]
            has_gradients = any(p.grad is not None for g in inner.param_groups for p in g["params"])
            if has_gradients and state["stage"].name == "READY":
                scaler.unscale_(inner)

    def clip_grad_norm_(
        self, parameters: Any, max_norm: float, norm_type: float = 2.0, **kwargs: Any
    ) -> torch.Tensor:
        """Clip gradients to a norm over all of them; returns the norm before.

        Inside an accumulation window that is not at its end nothing is clipped, and the norm so far returned.

        Args:
            parameters: a model's parameters, or one tensor.
            max_norm: largest norm.
            norm_type: order of the norm.
            **kwargs: for torch's function.
        """
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if not self.gradient_state.sync_gradients:
            return self.backend.clip_grad_norm(parameters, float("inf"), norm_type, **kwargs)
        self.unscale_gradients()
        return self.backend.clip_grad_norm(parameters, max_norm, norm_type, **kwargs)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clip gradients element by element to [-clip_value, clip_value], at the end of a window."""
        if self.gradient_state.sync_gradients:
            self.unscale_gradients()
            self.backend.clip_grad_value(parameters, clip_value)

    def _train_parameters_of_no_model(self) -> None:
        """Optimizers that were prepared before any model: what no model has claimed since is trained alike anyway."""
        own = {id(p) for m in self._models for p in torch.nn.Module.parameters(m)}
        for optimizer in self._modelless:
            loose = [p for p in self.backend.parameters_of(optimizer) if id(p) not in own]
            if loose:
                self.backend.add_parameters(loose)
        self._modelless.clear()
