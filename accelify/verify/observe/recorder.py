"""Inside a run: what backward is called on, the learning rates, the weights; and the end after enough steps."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch.autograd.graph import GradientEdge
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakTensorKeyDictionary

from accelify.verify.observe.context import Context
from accelify.verify.observe.randomness import LOSS_SCALING, RandomnessWatch
from accelify.verify.observe.tracing import Tracer

BACKWARD_PER_STEP = 200
"""Backward calls that one optimizer step may take before the run ends anyway."""
WEIGHTS_LIMIT = 2**31
"""Bytes of weights up to which they are stored for comparison parameter by parameter."""


Pair = tuple[torch.Tensor, torch.Tensor]


class Final(TypedDict):
    """The end of a run: parameters as they were before their first step and at the end, buffers, optimizer states."""

    weights: list[Pair]
    buffers: list[torch.Tensor]
    states: list[torch.Tensor]


@dataclass
class WatchedOptimizer:
    """One of the script's optimizers, which the script may let go of, and what it trains."""

    reference: weakref.ref[Optimizer]
    parameters: list[torch.Tensor]
    ends: dict[int, torch.Tensor] = field(default_factory=dict)


class Enough(BaseException):
    """The run has made its steps. No error, so that `except Exception` does not hold it up."""


class Recorder:
    """Records one process.

    Args:
        context: where events are written.
        steps: optimizer steps of one optimizer (without any: backward calls) after which the run ends.
        leave: called before the process is left from here, because the script holds the end up.
        save_weights: file to write the weights at start and end to.
        reference: such a file of another run, to compare the weights with.
        perturb: change gradients by as much as rounding would, to see how far rounding alone carries.
        quiet: take chance out of the training step.
        tracer: records some steps in detail.
    """

    def __init__(
        self,
        context: Context,
        steps: int,
        *,
        leave: Callable[[], None] = lambda: None,
        save_weights: str | None = None,
        reference: str | None = None,
        perturb: bool = False,
        quiet: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self.tracer = tracer
        self.context = context
        self.writer = context.writer
        self.steps = steps
        self.leave = leave
        self.save_weights = save_weights
        self.reference = reference
        self.perturb = perturb
        self.watch = RandomnessWatch(lambda reason, what: self._reason(reason, what), quiet)
        self.watched: list[WatchedOptimizer] = []
        self.counts: dict[int, int] = {}
        self.backward_calls = 0
        self.depth = 0
        self.observed: tuple[float, float, float | None] | None = None
        # Modules that were run, each with its number in the order of their first runs.
        self.modules: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        # Leaves of the graph, of a script that makes its steps by hand.
        self.parameters: list[torch.Tensor] = []
        # Each tensor that is trained has one number, whichever optimizers train it and whether these are gone.
        self.numbers: MutableMapping[torch.Tensor, int] = WeakTensorKeyDictionary()
        self.unused = itertools.count()
        self.starts: dict[int, torch.Tensor] = {}
        self.autocast: set[str] = set()
        self.scaled = False
        # The last loss that a GradScaler scaled, and what it was before.
        self.last_scaled: tuple[torch.Tensor, torch.Tensor] | None = None
        self.retained = 0
        self.raised = 0
        self.finished = False
        self.noise = torch.Generator().manual_seed(20)
        # Stored before randomness is taken out of the run, which puts a constant in its place.
        self.draw = torch.rand

    def install(self) -> None:
        """Record from now on."""
        self.watch.install()
        torch.nn.modules.module.register_module_forward_pre_hook(self._note_module)
        if self.perturb:
            torch.nn.modules.module.register_module_forward_hook(self._perturb_output)
        torch.autograd.backward = self._watched_backward(torch.autograd.backward)
        torch.amp.GradScaler.scale = self._watched_scale(torch.amp.GradScaler.scale)  # type: ignore[method-assign]
        torch.autocast.__enter__ = self._watched_autocast(torch.autocast.__enter__)  # type: ignore[method-assign]
        Optimizer.__init__ = self._watched_init(Optimizer.__init__)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def observe(self, loss: torch.Tensor, scale: float, accelerator: Any) -> None:
        """Observer for `accelify.runtime.observers`: the loss before the runtime scales it."""
        if loss.numel() == 1:
            scaled, before = self.last_scaled or (None, loss)
            unscaled = before if scaled is not None and scaled.data_ptr() == loss.data_ptr() else loss
            self.observed = float(unscaled), float(scale), accelerator.gradient_state.loss_weight

    def _note_module(self, module: torch.nn.Module, _: Any) -> None:
        self.modules.setdefault(module, len(self.modules))

    def _reason(self, reason: str, what: str) -> None:
        self.writer.write({"event": "reason", "reason": reason, "what": what})

    # Backward ---------------------------------------------------------------------------------------------------

    def _watched_backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            roots: list[Any] = (
                [tensors] if isinstance(tensors, (torch.Tensor, GradientEdge)) else list(tensors)
            )
            # From edges of the graph the runtime completes an averaging: no loss has a part in it.
            completes = all(isinstance(root, GradientEdge) for root in roots)
            if self.depth or self.finished or completes:
                return function(tensors, grad_tensors, *args, **kwargs)
            self.depth += 1
            try:
                self._before_backward(roots, grad_tensors)
                result = function(tensors, grad_tensors, *args, **kwargs)
                # After the draws of backward itself (checkpointing) a new stretch begins.
                self.watch.after_step()
                if self.tracer is not None:
                    self.tracer.after_backward(self._trained())
                    if not self.watched:
                        self.tracer.before_step()
                if self.perturb:
                    for parameter in self._trained():
                        self._perturb(parameter)
                return result
            finally:
                self.depth -= 1

        return watched

    def _before_backward(self, roots: list[torch.Tensor], gradients: Any) -> None:
        limit = self.steps * BACKWARD_PER_STEP if self.watched else self.steps
        if self.backward_calls >= limit:
            self._enough()
        self.backward_calls += 1
        self.context.sites.note_step()
        self.watch.before_backward()
        raw = _value(roots, gradients)
        value, scale, weight = self.observed or (raw, 1.0, None)
        self.observed = None
        if self.tracer is not None:
            self.tracer.before_backward(value * scale, weight, self._trained())
        self.writer.write(
            {
                "event": "loss",
                "value": value,
                "scale": scale,
                "raw": raw,
                "step": max(self.counts.values(), default=0 if self.watched else self.backward_calls - 1),
                "dtype": str(roots[0].dtype).removeprefix("torch."),
                "site": self.context.sites.here(),
                "weight": weight,
            }
        )
        if not self.watched and not self.parameters:
            self.parameters = _leaves(roots)
            self._remember(self.parameters)

    def _watched_scale(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(scaler: Any, outputs: Any) -> Any:
            scaled = function(scaler, outputs)
            if isinstance(outputs, torch.Tensor) and scaled is not outputs:
                self.watch.note(LOSS_SCALING, "fp16")
                if not self.scaled:
                    self.scaled = True
                    self.context.emit_here("scaling")
                scaled.__dict__["accelify_unscaled"] = outputs.detach()
                self.last_scaled = scaled.detach(), outputs.detach()
            return scaled

        return watched

    def _watched_autocast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(context: Any) -> Any:
            if context._enabled and not torch.compiler.is_compiling():
                dtype = str(context.fast_dtype).removeprefix("torch.")
                if dtype not in self.autocast:
                    self.autocast.add(dtype)
                    self.context.emit_here("autocast", dtype=dtype)
            return function(context)

        return watched

    # Optimizer steps --------------------------------------------------------------------------------------------

    def _watched_init(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = function(optimizer, *args, **kwargs)
            if _is_the_scripts(optimizer) and self._number(optimizer) < 0:
                self._watch(optimizer)
            return result

        return watched

    def _watch(self, optimizer: Optimizer) -> None:
        entry = WatchedOptimizer(weakref.ref(optimizer), list(_parameters_of([optimizer])))
        self.watched.append(entry)
        # The script may let go of it long before the run ends: what it trained is looked at then.
        weakref.finalize(optimizer, self._let_go, entry).atexit = False

    def _let_go(self, entry: WatchedOptimizer) -> None:
        if not self.finished:
            entry.ends = self._ends(entry.parameters)
            entry.parameters = []

    def _trained(self) -> list[torch.Tensor]:
        return list(_parameters_of(self._living())) or self.parameters

    def _living(self) -> list[Optimizer]:
        return [optimizer for entry in self.watched if (optimizer := entry.reference()) is not None]

    def _number(self, optimizer: Optimizer) -> int:
        return next((n for n, entry in enumerate(self.watched) if entry.reference() is optimizer), -1)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not _is_the_scripts(optimizer) or self.finished:
            return
        self.watch.before_backward()
        if self.tracer is not None:
            self.tracer.before_step()
        number = self._number(optimizer)
        if number >= 0:
            entry = self.watched[number]
            entry.parameters = list(_parameters_of([optimizer]))
            self._remember(entry.parameters)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not _is_the_scripts(optimizer) or self.finished:
            return
        number = self._number(optimizer)
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        site = self.context.sites.here()
        self.writer.write({"event": "step", "optimizer": number, "rates": rates, "site": site})
        self.counts[number] = self.counts.get(number, 0) + 1
        self.context.step = max(self.counts.values())
        self.watch.after_step()
        if self.counts[number] >= self.steps:
            self._enough()

    def _enough(self) -> None:
        self.raised += 1
        if self.raised > 3:
            # Somebody catches everything and goes on.
            self.finish("steps")
            self.leave()
            os._exit(0)
        raise Enough

    def _perturb(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse or not gradient.is_floating_point():
            return
        size = gradient.norm() / max(gradient.numel(), 1) ** 0.5
        random = self.draw(gradient.shape, generator=self.noise, dtype=torch.float32) * 2 - 1
        change = random.to(gradient) * size * 4 * torch.finfo(gradient.dtype).eps
        gradient.add_(torch.where(gradient == 0, torch.zeros_like(change), change))

    def _perturb_output(self, module: torch.nn.Module, _: Any, output: Any) -> Any:
        """Round a layer's output elsewhere, and its gradient with it.

        A gradient that is a sum of many terms which nearly cancel carries the rounding of each of them: far more than
        its size shows.
        """
        if torch.compiler.is_compiling() or not isinstance(output, torch.Tensor):
            return None
        if next(module.children(), None) is not None or not (
            output.requires_grad and output.is_floating_point()
        ):
            return None
        random = self.draw(output.shape, generator=self.noise, dtype=torch.float32) * 2 - 1
        return output * (1 + random.to(output) * torch.finfo(output.dtype).eps)

    # Weights ----------------------------------------------------------------------------------------------------

    def _name(self, parameter: torch.Tensor) -> int:
        return self.numbers.setdefault(parameter, next(self.unused))

    def _remember(self, parameters: Iterable[torch.Tensor]) -> None:
        if not (self.save_weights or self.reference):
            return
        for parameter in parameters:
            name = self._name(parameter)
            if name not in self.starts and self.retained <= WEIGHTS_LIMIT:
                self.retained += parameter.nbytes
                self.starts[name] = parameter.detach().cpu().clone()

    def _ends(self, parameters: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
        return {self._name(parameter): parameter.detach().cpu() for parameter in parameters}

    def finish(self, why: str) -> None:
        """Write the digest of weights, buffers and states, and how far they are from the reference; then the end."""
        if self.finished:
            return
        self.finished = True
        final = self._final()
        deviation = None
        if self.reference and os.path.exists(self.reference):
            deviation = deviations(torch.load(self.reference, weights_only=True), final)
        if self.save_weights and self.retained <= WEIGHTS_LIMIT:
            torch.save(final, self.save_weights)
        ends = [end for _, end in final["weights"]]
        self.writer.write(
            {
                "event": "weights",
                "digest": digest(ends) if ends else None,
                "buffers": digest(final["buffers"]) if ends else None,
                "states": digest(final["states"]),
                "living": len(self._living()),
                "parameters": len(ends),
                "deviation": deviation,
            }
        )
        self.writer.write({"event": "end", "why": why, "passes": self.watch.passes})

    def _final(self) -> Final:
        ends = {} if self.watched else self._ends(self.parameters)
        for entry in self.watched:
            ends |= entry.ends or self._ends(entry.parameters)
        # Those that never saw a step have no start; they are as they were made.
        pairs = [(self.starts.get(name, end), end) for name, end in ends.items()]
        return {"weights": pairs, "buffers": self._buffers(), "states": _states(self._living())}

    def _buffers(self) -> list[torch.Tensor]:
        """Buffers of the modules that were run and have a trained parameter somewhere, in the modules' order."""
        roots = [m for m in self.modules if any(p in self.numbers for p in m.parameters())]
        inner = {id(child) for root in roots for child in root.modules() if child is not root}
        found: dict[int, torch.Tensor] = {}
        for root in sorted((m for m in roots if id(m) not in inner), key=self.modules.__getitem__):
            for buffer in root.buffers():
                found.setdefault(id(buffer), buffer.detach().cpu().to_dense())
        return list(found.values())


def _is_the_scripts(optimizer: Any) -> bool:
    return not type(optimizer).__module__.startswith("accelify.")


def _parameters_of(optimizers: Iterable[Optimizer]) -> Iterable[torch.Tensor]:
    seen: set[int] = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield parameter


def _value(roots: list[torch.Tensor], gradients: Any) -> float:
    """The number that backward differentiates: the sum over the roots, weighted by the `gradients` argument."""
    weights = (
        [gradients] * len(roots) if gradients is None or isinstance(gradients, torch.Tensor) else gradients
    )
    total = 0.0
    for root, weight in zip(roots, weights, strict=False):
        if not isinstance(root, torch.Tensor):
            continue
        plain = root.__dict__.get("accelify_unscaled", root).detach()
        if isinstance(weight, torch.Tensor):
            total += float((plain * weight.detach()).sum())
        else:
            total += float(plain.sum())
    return total


def _leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that backward will fill with gradients, in an order that does not depend on the graph's shape."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    waiting = [root.grad_fn for root in roots if isinstance(root, torch.Tensor)]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            found[id(variable)] = variable
        waiting.extend(following for following, _ in node.next_functions)
    return sorted(found.values(), key=lambda leaf: (tuple(leaf.shape), digest([leaf.detach().cpu()])))


def _states(optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """What optimizers remember of each parameter, in the order of parameters and of names."""
    found: list[torch.Tensor] = []
    for optimizer in optimizers:
        for parameter in _parameters_of([optimizer]):
            state = optimizer.state.get(parameter, {})
            values = [state[name] for name in sorted(state, key=str)] if isinstance(state, dict) else []
            found += [value.detach().cpu().to_dense() for value in values if isinstance(value, torch.Tensor)]
    return found


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """A digest of tensors' types, shapes and bytes."""
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        result.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def deviations(reference: Final, own: Final) -> dict[str, float | None] | None:
    """How far a run's end is from another's; None where the two do not train the same tensors.

    `update`: distance of the weights as a share of how far the reference has moved them. `start`: largest difference
    before any step. `buffers` and `states`: distance as a share of the reference's size, None where there are none or
    where they do not match.
    """
    if [end.shape for _, end in reference["weights"]] != [end.shape for _, end in own["weights"]]:
        return None
    moved = apart = start = 0.0
    for (their_start, their_end), (own_start, own_end) in zip(
        reference["weights"], own["weights"], strict=True
    ):
        moved += float((their_end.double() - their_start.double()).norm() ** 2)
        apart += float((their_end.double() - own_end.double()).norm() ** 2)
        start = max(
            start, float((their_start.double() - own_start.double()).abs().max()) if their_end.numel() else 0
        )
    return {
        "update": (apart / moved) ** 0.5 if moved else apart**0.5,
        "start": start,
        "buffers": _distance(reference["buffers"], own["buffers"]),
        "states": _distance(reference["states"], own["states"]),
    }


def _distance(reference: list[torch.Tensor], own: list[torch.Tensor]) -> float | None:
    """The largest distance of two tensors as a share of the reference's size."""
    if not reference or [t.shape for t in reference] != [t.shape for t in own]:
        return None
    largest = 0.0
    for a, b in zip(reference, own, strict=True):
        size, apart = float(a.double().norm()), float((a.double() - b.double()).norm())
        largest = max(largest, apart / size if size else apart)
    return largest
