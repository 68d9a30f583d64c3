"""Inside a run: what backward is called on, the learning rates, the weights; and the end after enough steps."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from accelify.verify.observe.context import Context
from accelify.verify.observe.randomness import LOSS_SCALING, RandomnessWatch

BACKWARD_PER_STEP = 200
"""Backward calls that one optimizer step may take before the run ends anyway."""
WEIGHTS_LIMIT = 2**31
"""Bytes of weights up to which they are kept for comparison parameter by parameter."""


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
    ) -> None:
        self.context = context
        self.writer = context.writer
        self.steps = steps
        self.leave = leave
        self.save_weights = save_weights
        self.reference = reference
        self.perturb = perturb
        self.watch = RandomnessWatch(lambda reason, what: self._reason(reason, what), quiet)
        self.optimizers: list[Optimizer] = []
        self.counts: dict[int, int] = {}
        self.backward_calls = 0
        self.depth = 0
        self.observed: tuple[float, float] | None = None
        self.starts: dict[int, torch.Tensor] = {}
        self.parameters: list[torch.Tensor] = []
        self.autocast: set[str] = set()
        self.kept = 0
        self.raised = 0
        self.finished = False
        self.noise = torch.Generator().manual_seed(20)
        # Kept before chance is taken out of the run, which puts a constant in its place.
        self.draw = torch.rand

    def install(self) -> None:
        """Record from now on."""
        self.watch.install()
        if self.perturb:
            torch.nn.modules.module.register_module_forward_hook(self._perturb_output)
        torch.autograd.backward = self._watched_backward(torch.autograd.backward)
        torch.amp.GradScaler.scale = self._watched_scale(torch.amp.GradScaler.scale)  # type: ignore[method-assign]
        torch.autocast.__enter__ = self._watched_autocast(torch.autocast.__enter__)  # type: ignore[method-assign]
        Optimizer.__init__ = self._watched_init(Optimizer.__init__)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def observe(self, loss: torch.Tensor, scale: float, _: Any) -> None:
        """Observer for `accelify.runtime.observers`: the loss before the runtime's own scaling."""
        if loss.numel() == 1:
            self.observed = float(loss), float(scale)

    def _reason(self, reason: str, what: str) -> None:
        self.writer.write({"event": "reason", "reason": reason, "what": what})

    # Backward ---------------------------------------------------------------------------------------------------

    def _watched_backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self.depth or self.finished:
                return function(tensors, grad_tensors, *args, **kwargs)
            self.depth += 1
            try:
                roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
                self._before_backward(roots, grad_tensors)
                result = function(tensors, grad_tensors, *args, **kwargs)
                # After the draws of backward itself (checkpointing) a new stretch begins.
                self.watch.after_step()
                if self.perturb:
                    for parameter in list(_parameters_of(self.optimizers)) or self.parameters:
                        self._perturb(parameter)
                return result
            finally:
                self.depth -= 1

        return watched

    def _before_backward(self, roots: list[torch.Tensor], gradients: Any) -> None:
        limit = self.steps * BACKWARD_PER_STEP if self.optimizers else self.steps
        if self.backward_calls >= limit:
            self._enough()
        self.backward_calls += 1
        self.watch.before_backward()
        raw = _value(roots, gradients)
        value, scale = self.observed or (raw, 1.0)
        self.observed = None
        self.writer.write(
            {
                "event": "loss",
                "value": value,
                "scale": scale,
                "raw": raw,
                "step": max(self.counts.values(), default=0 if self.optimizers else self.backward_calls - 1),
                "dtype": str(roots[0].dtype).removeprefix("torch."),
            }
        )
        if not self.optimizers and not self.parameters:
            self.parameters = _leaves(roots)
            self._remember(self.parameters)

    def _watched_scale(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(scaler: Any, outputs: Any) -> Any:
            scaled = function(scaler, outputs)
            if isinstance(outputs, torch.Tensor) and scaled is not outputs:
                self.watch.note(LOSS_SCALING, "fp16")
                scaled.__dict__["accelify_unscaled"] = outputs.detach()
            return scaled

        return watched

    def _watched_autocast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(context: Any) -> Any:
            if context._enabled and not torch.compiler.is_compiling():
                dtype = str(context.fast_dtype).removeprefix("torch.")
                if dtype not in self.autocast:
                    self.autocast.add(dtype)
                    self.writer.write({"event": "autocast", "dtype": dtype})
            return function(context)

        return watched

    # Optimizer steps --------------------------------------------------------------------------------------------

    def _watched_init(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = function(optimizer, *args, **kwargs)
            if _is_the_scripts(optimizer) and not any(known is optimizer for known in self.optimizers):
                self.optimizers.append(optimizer)
            return result

        return watched

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not _is_the_scripts(optimizer) or self.finished:
            return
        self.watch.before_backward()
        self._remember(_parameters_of([optimizer]))

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not _is_the_scripts(optimizer) or self.finished:
            return
        number = next((n for n, known in enumerate(self.optimizers) if known is optimizer), -1)
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        self.writer.write({"event": "step", "optimizer": number, "rates": rates})
        self.counts[number] = self.counts.get(number, 0) + 1
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
        its own size tells.
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

    def _remember(self, parameters: Iterable[torch.Tensor]) -> None:
        if not (self.save_weights or self.reference):
            return
        for parameter in parameters:
            if id(parameter) not in self.starts and self.kept <= WEIGHTS_LIMIT:
                self.kept += parameter.nbytes
                self.starts[id(parameter)] = parameter.detach().cpu().clone()

    def finish(self, why: str) -> None:
        """Write the weights' digest, and how far they are from the reference; then the end."""
        if self.finished:
            return
        self.finished = True
        parameters = list(_parameters_of(self.optimizers)) or self.parameters
        # Those that never saw a step have no start; they are as they were made.
        pairs = [(self.starts.get(id(p), p.detach().cpu()), p.detach().cpu()) for p in parameters]
        deviation = None
        if self.reference and os.path.exists(self.reference):
            deviation = _deviation(torch.load(self.reference, weights_only=True), pairs)
        if self.save_weights and self.kept <= WEIGHTS_LIMIT:
            torch.save(pairs, self.save_weights)
        digest = _digest([end for _, end in pairs]) if pairs else None
        self.writer.write(
            {"event": "weights", "digest": digest, "parameters": len(pairs), "deviation": deviation}
        )
        self.writer.write({"event": "end", "why": why, "passes": self.watch.passes})


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
    """The number that backward differentiates: the sum over the roots, weighed by the gradients handed in."""
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
    return sorted(found.values(), key=lambda leaf: (tuple(leaf.shape), _digest([leaf.detach().cpu()])))


def _digest(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _deviation(
    reference: list[tuple[torch.Tensor, torch.Tensor]], own: list[tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, float] | None:
    """How far the weights are apart, as a share of how far the reference has moved them; and before any step."""
    if [end.shape for _, end in reference] != [end.shape for _, end in own]:
        return None
    moved = apart = start = 0.0
    for (their_start, their_end), (own_start, own_end) in zip(reference, own, strict=True):
        moved += float((their_end.double() - their_start.double()).norm() ** 2)
        apart += float((their_end.double() - own_end.double()).norm() ** 2)
        start = max(
            start, float((their_start.double() - own_start.double()).abs().max()) if their_end.numel() else 0
        )
    return {"update": (apart / moved) ** 0.5 if moved else apart**0.5, "start": start}
