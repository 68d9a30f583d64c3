"""One model under DeepSpeed: its engine, its optimizer, and the gradients that wait for a step.

DeepSpeed works here without its count (`managed_gradient_accumulation` false): every backward adds to the existing
gradients, and `step` takes them as complete. Where each stage stores them differs, and is handled in this file alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist


class Training:
    """A model, its DeepSpeedEngine and the script's optimizer.

    Args:
        engine: from `deepspeed.initialize`.
        optimizer: the script's, or its stand-in.
        parameters: that it trains, as the model has them.
    """

    def __init__(self, engine: Any, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
        self.engine = engine
        self.optimizer = optimizer
        self.parameters = parameters
        self.identities = {id(p) for p in parameters}
        # Gradients wait for a step.
        self.waiting = False
        # They are averaged over ranks and complete.
        self.complete = False
        # The factor on them; the engine expects its loss scale there.
        self.stored_scale = 1.0
        self.skipped = False
        self._touched = False
        inner = engine._backward_prologue

        def prologue() -> None:
            self._touched = True
            inner()

        engine._backward_prologue = prologue

    @property
    def stage(self) -> int:
        return int(self.engine.zero_optimization_stage())

    @property
    def loss_scale(self) -> float:
        """The loss scale of fp16 now, else 1."""
        if not self.engine.fp16_enabled():
            return 1.0
        return float(self.engine.optimizer.loss_scale)

    # Backward

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Around a backward pass that may reach this model."""
        engine = self.engine
        if self.complete:
            raise RuntimeError(
                "backward after clip_grad_norm_ or clip_grad_value_ and before the optimizer's step: DeepSpeed's "
                "gradients are complete then; clip after the last backward"
            )
        if hasattr(engine.optimizer, "clear_backward_seen_flag"):
            # Done by every forward; a second backward after one forward needs it too.
            engine.optimizer.clear_backward_seen_flag()
        self._touched = False
        engine._running_engine_backward = True
        try:
            yield
        finally:
            engine._running_engine_backward = False

    def after_backward(self, scale: float) -> bool:
        """Take in the gradients of a backward whose loss was multiplied by `scale`; returns whether there are any."""
        if not self._touched:
            return False
        self.engine._backward_epilogue()
        self.waiting = True
        self.stored_scale = scale
        return True

    # Complete gradients

    def finish(self) -> None:
        """Average what waits over ranks."""
        if self.complete:
            return
        engine = self.engine
        engine._running_engine_step = True
        try:
            if engine.zero_optimization_partition_gradients():
                engine.optimizer.finalize_gradient_accumulation_boundary()
            else:
                engine.allreduce_gradients()
        finally:
            engine._running_engine_step = False
        self.complete = True
        expected = self.loss_scale
        if self.stored_scale != expected:
            self.multiply(expected / self.stored_scale)
            self.stored_scale = expected

    def pieces(self) -> list[torch.Tensor]:
        """This rank's part of complete gradients; in stage 0, all of them on every rank."""
        optimizer = self.engine.optimizer
        if not self.engine.zero_optimization():
            if hasattr(optimizer, "fp32_groups_gradient_flat_partition"):
                return list(optimizer.fp32_groups_gradient_flat_partition)
            return [p.grad for p in self.parameters if p.grad is not None]
        if hasattr(optimizer, "fp32_groups_gradient_flat_partition"):
            return list(optimizer.fp32_groups_gradient_flat_partition)
        if getattr(optimizer, "cpu_offload", False):
            flat = optimizer.single_partition_of_fp32_groups
            return [p.grad for p in flat if p.grad is not None]
        if getattr(optimizer, "offload_optimizer", False):
            return [p.grad for p in optimizer.fp32_partitioned_groups_flat if p.grad is not None]
        return [g for group in optimizer.averaged_gradients.values() if group is not None for g in group]

    def multiply(self, factor: float) -> None:
        """Multiply complete gradients."""
        with torch.no_grad():
            for piece in self.pieces():
                piece.mul_(factor)

    def clamp(self, limit: float) -> None:
        """Cut complete gradients off at -limit and limit."""
        scaled = limit * self.loss_scale
        with torch.no_grad():
            for piece in self.pieces():
                piece.clamp_(-scaled, scaled)

    def power_sum(self, norm_type: float) -> torch.Tensor:
        """Of complete gradients over all ranks: the sum of |g| ** norm_type, or the largest |g| for infinity."""
        pieces = [p.detach().float() for p in self.pieces()]
        scale = self.loss_scale
        device = pieces[0].device if pieces else torch.device("cpu")
        if math.isinf(norm_type):
            largest = [p.abs().max() / scale for p in pieces if p.numel()]
            total = torch.stack(largest).max() if largest else torch.zeros((), device=device)
        else:
            norms = [torch.linalg.vector_norm(p, norm_type) / scale for p in pieces]
            total = torch.stack(norms).pow(norm_type).sum() if norms else torch.zeros((), device=device)
        if self.engine.zero_optimization():
            operation = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
            dist.all_reduce(total, op=operation)
        return total

    # Steps

    def step(self) -> None:
        """The engine's step, with its loss scaling, its clipping and its scheduler."""
        if not self.waiting:
            # As torch's optimizers with parameters that have no gradients.
            self.skipped = False
            return
        if self.stored_scale != self.loss_scale:
            self.finish()
        with self._already_averaged() if self.complete else contextlib.nullcontext():
            self.engine.step()
        self.skipped = not self.engine.was_step_applied()
        self._clear_offloaded()
        self._forget()

    def _clear_offloaded(self) -> None:
        """Clear gradients on the host: the next backward overwrites them, but for parameters that it does not reach:
        those would be stepped with their last gradients again."""
        optimizer = self.engine.optimizer
        if getattr(optimizer, "cpu_offload", False) or getattr(optimizer, "offload_optimizer", False):
            for piece in self.pieces():
                piece.zero_()

    @contextlib.contextmanager
    def _already_averaged(self) -> Iterator[None]:
        """The engine's step averages first; not a second time."""
        engine = self.engine
        owner, name = engine, "allreduce_gradients"
        if engine.zero_optimization_partition_gradients():
            owner, name = engine.optimizer, "finalize_gradient_accumulation_boundary"
        owner.__dict__[name] = lambda *_, **__: None
        try:
            yield
        finally:
            del owner.__dict__[name]

    def drop_gradients(self) -> None:
        """Forget what waits for a step."""
        if not self.waiting:
            return
        optimizer = self.engine.optimizer
        if hasattr(optimizer, "clear_hp_grads"):
            optimizer.clear_hp_grads()
            optimizer.clear_lp_grads()
        elif self.stage == 0:
            self.engine.zero_grad()
        elif self.stage < 3:
            optimizer.zero_grad()
            optimizer._release_preflattened_grad_buffers()
            for contained in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
                for group in contained:
                    contained[group] = None
            # As after a step: the next backward is the first of a window.
            optimizer.micro_step_id = -1
            if optimizer.cpu_offload:
                optimizer._offload_accumulated_param_ids = set()
                optimizer.reset_cpu_buffers()
        else:
            optimizer.zero_grad()
            if optimizer.offload_optimizer:
                optimizer.reset_cpu_buffers()
            else:
                optimizer.averaged_gradients = {}
        self._forget()

    def _forget(self) -> None:
        if self.stage == 3:
            # What a parameter left here would count again in a window that does not use it.
            self.engine.optimizer.grad_partitions_flat_buffer.zero_()
        self.waiting = self.complete = False
