"""The Accelerator's files: weights, and checkpoints from which a run goes on as if never stopped."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from . import checkpoint, checkpoint_folders, collectives, files, preemption
from .background import Background
from .pickled import OfThisProcess
from .plugins import ProjectConfiguration
from .process import ProcessControl

if TYPE_CHECKING:
    from .accelerator import Accelerator
    from .backends.base import Backend
    from .data.loaders import DataLoaderShard

SaveHook = Callable[[list[torch.nn.Module], list[dict[str, Any]], str], None]
LoadHook = Callable[[list[torch.nn.Module], str], None]


class HookHandle:
    """Takes a hook out again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks = hooks
        self._hook = hook

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class Saving(OfThisProcess, ProcessControl):
    """The part of the Accelerator that saves and loads."""

    project_configuration: ProjectConfiguration
    backend: Backend
    _models: list[torch.nn.Module]
    _loaders: weakref.WeakValueDictionary[int, DataLoaderShard]

    def _begin_saving(self) -> None:
        self._custom_objects: list[Any] = []
        self._save_hooks: list[SaveHook] = []
        self._load_hooks: list[LoadHook] = []
        self._preempted = False
        # What is being written in the background, and which run this is among those of a project's directory.
        self._saving: Background | None = None
        self._run: str | None = None
        # Places in the epoch, of a checkpoint that was loaded, for loaders that are prepared after that.
        self._waiting_positions: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._be_the_one()

    @property
    def _dataloaders(self) -> list[DataLoaderShard]:
        return list(self._loaders.values())

    @property
    def project_dir(self) -> Any:
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> Any:
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        return self.project_configuration.iteration

    def save(self, obj: Any, f: Any, safe_serialization: bool = False) -> None:
        """`torch.save` by one process, written whole or not at all.

        Args:
            obj: what to save.
            f: path or file object.
            safe_serialization: a dict of tensors goes into a safetensors file.
        """
        obj = self.backend.to_host(obj)
        each_node = self.project_configuration.save_on_each_node
        if self.is_local_main_process if each_node else self.is_main_process:
            files.save(obj, f, safe_serialization)

    def save_model(
        self,
        model: torch.nn.Module,
        save_directory: str | Path,
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Write a model's weights into a directory, in files of at most `max_shard_size`."""
        weights = self.get_state_dict(model)
        if self.is_main_process:
            files.save_weights(weights, Path(save_directory), max_shard_size, safe_serialization)

    def get_state_dict(self, model: torch.nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """A prepared model's weights, whole, under the script's names."""
        return self.backend.state_dict(getattr(model, "_orig_mod", model))

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """A loader without its first batches, for the rest of an epoch."""
        from .data.skipping import skip_first_batches

        return skip_first_batches(dataloader, num_batches)

    # Checkpoints

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these objects with every checkpoint too.

        Raises:
            ValueError: an object without `state_dict` and `load_state_dict`.
        """
        for item in objects:
            if not hasattr(item, "state_dict") or not hasattr(item, "load_state_dict"):
                raise ValueError(
                    f"register_for_checkpointing needs objects with state_dict and load_state_dict; "
                    f"{type(item).__name__} has not both"
                )
        self._custom_objects.extend(objects)

    def register_save_state_pre_hook(self, hook: SaveHook) -> HookHandle:
        """Call `hook(models, weights, output_dir)` before a checkpoint is written; what it takes out of `weights`
        is not written."""
        self._save_hooks.append(hook)
        return HookHandle(self._save_hooks, hook)

    def register_load_state_pre_hook(self, hook: LoadHook) -> HookHandle:
        """Call `hook(models, input_dir)` before a checkpoint is loaded; models it takes out of the list are not
        loaded."""
        self._load_hooks.append(hook)
        return HookHandle(self._load_hooks, hook)

    def save_state(
        self,
        output_dir: str | Path | None = None,
        safe_serialization: bool = True,
        *,
        asynchronous: bool = False,
        **save_model_kwargs: Any,
    ) -> str:
        """Write everything that was prepared or registered, the random state of every rank and the position in the
        epoch. The checkpoint is whole or not there, and an older one goes only after the new one is complete.

        Args:
            output_dir: where to; with automatic naming, always `checkpoints/checkpoint_<n>` in the project.
            safe_serialization: weights as safetensors; False: with torch.save.
            asynchronous: go on training as soon as everything is copied to the host, and write meanwhile. The next
                `save_state`, `load_state`, `end_training` and `wait_for_saving` wait for it, and so does the end of
                the process.
            **save_model_kwargs: `max_shard_size`.

        Returns:
            The checkpoint's directory.

        Raises:
            ValueError: no directory is known.
            RuntimeError: it could not be written, on every rank, with the cause.
        """
        config = self.project_configuration
        target: Path | None = None
        if config.automatic_checkpoint_naming:
            checkpoint_folders.automatic_directory(config)
        elif output_dir is None:
            raise ValueError("save_state needs output_dir, or a project_dir and automatic_checkpoint_naming")
        else:
            target = Path(output_dir)
        target = checkpoint.save(
            cast("Accelerator", self),
            target,
            safe_serialization,
            save_model_kwargs.get("max_shard_size", "10GB"),
            asynchronous,
        )
        config.iteration += 1
        return str(target)

    def wait_for_saving(self) -> None:
        """Return when a checkpoint that `save_state(..., asynchronous=True)` began is written; every rank has to call.

        Raises:
            RuntimeError: it could not be written, on every rank, with the cause; earlier ones are as they were.
        """
        checkpoint.wait(cast("Accelerator", self))

    def load_state(self, input_dir: str | Path | None = None, **load_model_kwargs: Any) -> None:
        """Go back to where `save_state` was called, in the middle of an epoch too: the next pass of a loader that was
        in use begins with the batch that was next.

        Args:
            input_dir: the checkpoint; default: the newest complete one of automatic naming.
            **load_model_kwargs: for the models' `load_state_dict`, such as `strict`.

        Raises:
            ValueError: the directory is not a complete checkpoint, or one of another set of objects.
        """
        source = None if input_dir is None else Path(input_dir)
        checkpoint.load(cast("Accelerator", self), source, load_model_kwargs)

    # Time limits

    def _take_position(self, loader: DataLoaderShard) -> None:
        """Let a loader that is prepared after `load_state` go on where it was."""
        if self._waiting_positions:
            loader.resume_from(*self._waiting_positions.pop(0))

    def watch_preemption(self, *signals: int) -> None:
        """Note signals by which a queue announces its time limit; ask with `check_preemption`.

        Args:
            *signals: default SIGTERM, and SIGUSR1 where the script does not use it: Slurm's `--signal` sends that, and
                `accelify launch` passes it on.
        """
        self._preempted = preemption.watch(self._note_preemption, signals) or self._preempted

    def _note_preemption(self) -> None:
        self._preempted = True

    def check_preemption(self) -> bool:
        """Whether any rank got a signal that is watched; every rank must ask, and all get the same answer."""
        return collectives.on_any_rank(self._preempted)
