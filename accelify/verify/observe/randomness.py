"""Legitimate reasons why the losses of several processes differ from one's: noise and batch statistics, at run time.

Random state is compared before and after the places where a training step draws from it. What a loader's sampler
draws between two batches is not looked at: the order of the samples is the same on any number of processes.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from accelify.verify.observe.quiet import PerSample, Quiet

DROPOUT, BATCH_STATISTICS, STEP_NOISE, SAMPLE_NOISE = "dropout", "batch statistics", "noise", "augmentation"
LOSS_SCALING, EVALUATION_NOISE = "loss scaling", "evaluation"
_DROPOUTS = (
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
)  # fmt: skip

Note = Callable[[str, str], None]
# Generators that the script made of numpy.random.default_rng; beyond a few nobody looks.
_GENERATORS: list[Any] = []
_GENERATORS_WATCHED = 8


class RandomState:
    """The states of torch's, Python's and NumPy's generators, as far as they are in use."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.python = random.getstate()
        self.numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
        self.own = [generator.bit_generator.state for generator in _GENERATORS]

    def moved_since(self, before: RandomState) -> list[str]:
        """The generators that were drawn from in between."""
        moved = [] if torch.equal(self.torch, before.torch) else ["torch"]
        if self.python != before.python:
            moved.append("random")
        if self.numpy is not None and before.numpy is not None:
            same = self.numpy[2] == before.numpy[2] and (self.numpy[1] == before.numpy[1]).all()
            moved += [] if same else ["numpy.random"]
        if any(repr(a) != repr(b) for a, b in zip(before.own, self.own, strict=False)):
            moved.append("a numpy generator")
        return moved


class RandomnessWatch:
    """Looks for reasons in one process and notes each once. `passes` counts the loaders that ran out.

    Args:
        note: called with a kind of reason and what it was seen in.
        quiet: take chance out of the step; what is noted then is what could not be taken out.
    """

    def __init__(self, note: Note, quiet: bool = False) -> None:
        self._note = note
        self.quiet = Quiet() if quiet else None
        self._seen: set[str] = set()
        self._last: RandomState | None = None
        self.passes = 0

    def install(self) -> None:
        """Watch from now on. Changes no number and draws none, unless quiet."""
        if self.quiet:
            self.quiet.install()
        for name in _DROPOUTS:
            setattr(F, name, _compiled_as_ever(self._watched_dropout(getattr(F, name))))
        F.batch_norm = _compiled_as_ever(self._watched_batch_norm(F.batch_norm))
        F.scaled_dot_product_attention = self._watched_attention(F.scaled_dot_product_attention)
        torch.nn.modules.module.register_module_forward_pre_hook(self._before_module)
        fetchers: tuple[Any, ...] = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)
        for fetcher in fetchers:
            fetcher.fetch = self._watched_fetch(fetcher.fetch)
        if "numpy" in sys.modules:
            numpy = sys.modules["numpy"]
            numpy.random.default_rng = _watched_generator(numpy.random.default_rng)
        loader: Any = dataloader._BaseDataLoaderIter
        loader.__next__ = self._watched_next(loader.__next__)

    def note(self, reason: str, what: str) -> None:
        if reason not in self._seen:
            self._seen.add(reason)
            self._note(reason, what)

    def before_backward(self) -> None:
        """Note what was drawn since the batch was fetched or the last step ended."""
        if self.quiet:
            self.quiet.begin()
        self._note_draws(STEP_NOISE)

    def _note_draws(self, reason: str) -> None:
        if STEP_NOISE in self._seen or reason in self._seen:
            return
        now = RandomState()
        if self._last is not None and (moved := now.moved_since(self._last)):
            self.note(reason, " and ".join(moved))
        self._last = now

    def after_step(self) -> None:
        """A new step begins: what is drawn from here on belongs to it."""
        if STEP_NOISE not in self._seen:
            self._last = RandomState()

    def _excused(self, call: Callable[[], Any]) -> Any:
        """Run `call`, whose draws have a name already; what was drawn before it still counts."""
        self.before_backward()
        result = call()
        self.after_step()
        return result

    def _watched_dropout(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            if training and p > 0 and self.quiet is not None:
                return function(input, p, False, *args, **kwargs)
            if not (training and p > 0) or torch.compiler.is_compiling():
                return function(input, p, training, *args, **kwargs)
            self.note(DROPOUT, f"p={p:g}")
            return self._excused(lambda: function(input, p, training, *args, **kwargs))

        if function.__name__ in ("alpha_dropout", "feature_alpha_dropout"):
            # These two are off by default.
            @functools.wraps(function)
            def off_by_default(
                input: Any, p: float = 0.5, training: bool = False, *args: Any, **kw: Any
            ) -> Any:
                return watched(input, p, training, *args, **kw)

            return off_by_default
        return watched

    def _watched_attention(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(
            q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, *args: Any, **kw: Any
        ) -> Any:
            if "attn_mask" in kw:
                mask = kw.pop("attn_mask")
            if dropout_p > 0 and self.quiet is not None:
                return function(q, k, v, mask, 0.0, *args, **kw)
            if dropout_p <= 0 or torch.compiler.is_compiling():
                return function(q, k, v, mask, dropout_p, *args, **kw)
            self.note(DROPOUT, f"p={dropout_p:g}, in attention")
            return self._excused(lambda: function(q, k, v, mask, dropout_p, *args, **kw))

        return watched

    def _watched_batch_norm(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(
            input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
            training: bool = False, *args: Any, **kwargs: Any,
        ) -> Any:  # fmt: skip
            if training and self.quiet:
                return _fixed_batch_norm(function, input, running_mean, running_var, weight, bias)
            if training and not torch.compiler.is_compiling():
                self.note(BATCH_STATISTICS, "batch normalisation")
            return function(input, running_mean, running_var, weight, bias, training, *args, **kwargs)

        return watched

    def _before_module(self, module: torch.nn.Module, _: Any) -> None:
        if module.training and isinstance(module, torch.jit.ScriptModule):
            self._before_script(module)
        if module.training and isinstance(module, torch.nn.RNNBase) and module.dropout > 0:
            if self.quiet:
                module.dropout = 0.0
            else:
                self.note(DROPOUT, f"p={module.dropout:g}, in {type(module).__name__}")

    def _before_script(self, module: torch.jit.ScriptModule) -> None:
        """The parts of a compiled module are called from within TorchScript, past what is watched here."""
        for part in module.modules():
            kind = getattr(part, "original_name", "")
            reason = BATCH_STATISTICS if "BatchNorm" in kind else DROPOUT if "Dropout" in kind else None
            if reason and self.quiet:
                part.eval()
            elif reason:
                self.note(reason, f"{kind} in TorchScript")

    def _watched_fetch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(fetcher: Any, index: Any) -> Any:
            if self.quiet and isinstance(fetcher, fetch._MapDatasetFetcher):
                return function(_with_streams(fetcher), index)
            if SAMPLE_NOISE in self._seen:
                return function(fetcher, index)
            before = RandomState()
            batch = function(fetcher, index)
            if moved := RandomState().moved_since(before):
                self.note(SAMPLE_NOISE, f"{type(fetcher.dataset).__name__} draws from {' and '.join(moved)}")
            return batch

        return watched

    def _watched_next(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(iterator: Any) -> Any:
            # Whatever was drawn for the batch before; what starts a pass draws an order, which is left out.
            if iterator.__dict__.pop("accelify_given", False):
                self._note_draws(EVALUATION_NOISE)
            try:
                batch = function(iterator)
            except StopIteration:
                self.passes += 1
                raise
            iterator.accelify_given = True
            if self.quiet:
                self.quiet.begin()
            self.after_step()
            return batch

        return watched


def _compiled_as_ever(watched: Callable[..., Any]) -> Callable[..., Any]:
    """Have TorchScript compile the function that `watched` is around, as for its own `script_if_tracing`."""
    vars(watched).update({"__script_if_tracing_wrapper": True, "__original_fn": vars(watched)["__wrapped__"]})
    return watched


def _fixed_batch_norm(function: Any, input: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    """Batch normalisation by the running statistics, or by none where the layer keeps none."""
    if mean is None:
        mean, var = input.new_zeros(input.shape[1]), input.new_ones(input.shape[1])
    return function(input, mean, var, weight, bias, False)


def _with_streams(fetcher: Any) -> Any:
    if not isinstance(fetcher.dataset, PerSample):
        fetcher.dataset = PerSample(fetcher.dataset)
    return fetcher


def _watched_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        if len(_GENERATORS) < _GENERATORS_WATCHED:
            _GENERATORS.append(generator)
        return generator

    return watched
