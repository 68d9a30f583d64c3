"""The verbs every engine has. Defaults are those of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from ..compiling import compile_blocks
from ..plugins import TorchDynamoPlugin
from ..precision import Precision, run_as_before
from ..state import DistributedType, PartialState


class Backend:
    """One engine.

    Attributes:
        plain: a step of this engine is the script's step, with nothing around it.
        reads_shards: it loads checkpoints that contain each rank's part (`save_shards`) in place of whole weights.

    Args:
        process: rank and device.
        precision: of the models.
        options: handlers and plugins of the Accelerator, by name.
    """

    plain = False
    reads_shards = False

    def __init__(self, process: PartialState, precision: Precision, options: dict[str, Any]) -> None:
        self.process = process
        self.precision = precision
        self.options = options
        self.world_size = process.num_processes
        self.rank = process.process_index
        self.device = process.device
        # What the loss of the last backward was multiplied by, loss scaling aside.
        self.last_scale = 1.0

    @property
    def distributed_type(self) -> DistributedType:
        """The value of `accelerator.distributed_type`."""
        return self.process.distributed_type

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put a model where it runs."""
        return model.to(self.device)

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        """Make a placed model fit for training with this engine."""
        return model

    def unwrap(self, model: torch.nn.Module, keep_precision: bool = True) -> torch.nn.Module:
        """The script's module, without its wrapper."""
        if not keep_precision:
            run_as_before(model)
        return model

    def backward(self, loss: torch.Tensor, sync: bool, **kwargs: Any) -> None:
        """The backward pass; with `sync`, gradients are averaged over ranks when it returns."""
        loss.backward(**kwargs)  # type: ignore[no-untyped-call]

    def no_sync(self, models: Iterable[torch.nn.Module]) -> contextlib.AbstractContextManager[Any]:
        """A region whose backward passes leave gradients on their ranks."""
        return contextlib.nullcontext()

    def sync_next(self, model: torch.nn.Module) -> None:
        """Average gradients in the next backward although the forward ran under `no_sync`."""

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Make an optimizer hold the parameters that its model has now, where placing or wrapping made new ones.

        Called for every prepared optimizer, and again after every further model is wrapped.
        """

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        """The optimizer's step at the end of a window."""
        if closure is None:
            return optimizer.step()
        return optimizer.step(self.shared_closure(closure) if self.world_size > 1 else closure)

    def step_was_skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an engine that scales losses itself left this optimizer's last step out."""
        return False

    def zero_grad(self, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
        """Clear gradients at the end of a window."""
        optimizer.zero_grad(set_to_none=set_to_none)

    def place_batch(self, batch: Any, loader: Any) -> Any:
        """A batch of a prepared loader, already on the device, laid out as the engine wants it."""
        return batch

    def adopt_loader(self, loader: Any) -> None:
        """Take a loader that was just prepared into the engine's care."""

    def drop_padding(self, data: Any) -> Any:
        """What was computed on the current batch, without samples that the engine added to it."""
        return data

    def to_host(self, item: Any) -> Any:
        """A nested container as files hold it: its tensors where every reader can have them."""
        return item

    def parameters_of(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        """The parameters of models that an optimizer trains; its groups may hold others in their place."""
        return [p for group in optimizer.param_groups for p in group["params"]]

    def scale_gradients(self, parameters: list[torch.Tensor], factor: float) -> None:
        """Multiply the gradients accumulated so far."""
        earlier = [p.grad for p in parameters if p.grad is not None]
        if earlier:
            torch._foreach_mul_(earlier, factor)

    def note_loader(self, batch_size: int | None) -> None:
        """A loader was prepared whose batches have this number of samples over all ranks, None where it is unknown."""

    def add_parameters(self, parameters: list[torch.Tensor]) -> None:
        """Also train these, which belong to no prepared model."""

    def clip_grad_norm(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, **kwargs: Any
    ) -> torch.Tensor:
        """Clip complete gradients to a norm; returns the norm before."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type, **kwargs)

    def clip_grad_value(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Clip complete gradients element by element."""
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def window_gradients(self, parameters: list[torch.Tensor]) -> list[Any]:
        """What has come together on this rank so far in an accumulation window, for a checkpoint."""
        return [None if p.grad is None else p.grad.detach().cpu() for p in parameters]

    def restore_window_gradients(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        """Put back what `window_gradients` gave."""
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = None if gradient is None else gradient.to(p.device)

    def compile(self, model: torch.nn.Module, plugin: TorchDynamoPlugin) -> torch.nn.Module:
        """A wrapped model, compiled: its repeated blocks where the plugin asks for them and there are any, or whole."""
        arguments = plugin.compile_arguments()
        if plugin.use_regional_compilation and compile_blocks(model, arguments):
            return model
        return self.compile_whole(model, arguments)

    def compile_whole(self, model: torch.nn.Module, arguments: dict[str, Any]) -> torch.nn.Module:
        """A wrapped model, compiled as a whole with these arguments of `torch.compile`."""
        return torch.compile(model, **arguments)  # type: ignore[return-value]

    def unwrap_compiled(self, model: torch.nn.Module) -> torch.nn.Module:
        """The script's module without its wrapper, compiled where it was compiled by itself."""
        return self.unwrap(model)

    def shared_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure whose loss is the same on every rank."""
        return closure

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """The model's weights, whole, under the script's names."""
        return self.unwrap(model).state_dict()

    def load_state_dict(self, model: torch.nn.Module, weights: dict[str, Any], strict: bool = True) -> Any:
        """Load whole weights under the script's names; what torch's `load_state_dict` returns."""
        return self.unwrap(model).load_state_dict(weights, strict=strict)

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The optimizer's state, whole, as a plain torch optimizer has it; every rank calls, the main one needs it."""
        return optimizer.state_dict()

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Load what `optimizer_state_dict` gave, on however many ranks."""
        optimizer.load_state_dict(state)

    def saved_weights(self, model: torch.nn.Module) -> dict[str, Any]:
        """`state_dict` for a checkpoint: every rank calls, and the main process has it whole."""
        return self.state_dict(getattr(model, "_orig_mod", model))

    def saved_optimizer(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """`optimizer_state_dict` for a checkpoint: every rank calls, and the main process has it whole."""
        return self.optimizer_state_dict(optimizer)

    def saves_shards(
        self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], shared: bool
    ) -> bool:
        """Whether a checkpoint contains each rank's part in place of whole weights.

        Args:
            models, optimizers: of the checkpoint.
            shared: all ranks see the directory it is written to.
        """
        return False

    def save_shards(
        self,
        directory: Path,
        models: list[torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
        asynchronous: bool = False,
    ) -> Callable[[], None] | None:
        """Write every rank's part of weights and optimizer states, for engines that save shards.

        Args:
            directory, models, optimizers: of the checkpoint.
            asynchronous: only copy them, and write from the background where the engine can.

        Returns:
            What waits until they are written, on the main process those of all ranks; None: they are.
        """
        raise NotImplementedError(f"{type(self).__name__} says that it saves shards, and has no save_shards")

    def load_shards(
        self, directory: Path, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        """Read what `save_shards` wrote, on however many ranks."""
        raise NotImplementedError(f"{type(self).__name__} says that it reads shards, and has no load_shards")

    def check_trains_alone(self, operation: str) -> None:
        """Raise where ranks cannot train independently for some steps, as `operation` wants them to."""

    def join(self, models: list[torch.nn.Module]) -> contextlib.AbstractContextManager[Any]:
        """A region in which ranks may run out of batches at different times."""
        return contextlib.nullcontext()
