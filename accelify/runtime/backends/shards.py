"""Checkpoints of which every rank writes its part, through torch.distributed.checkpoint.

Folders and keys are those that Hugging Face Accelerate writes for sharded models: `pytorch_model_fsdp_<i>` with
"model.<name>", so that its tools and torch's (`torch.distributed.checkpoint.format_utils`) read the weights too. An
optimizer's divided values are beside them by number of the parameter; what is the same on every rank is a file of the
main process's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._state_dict_utils import _offload_state_dict_to_cpu
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException

from .. import guard
from .dtensors import divided_like
from .shard_files import check_description

_REST = "optimizer_{}_rest.bin"


def model_folder(directory: Path, index: int) -> Path:
    """Where the weights of a checkpoint's model number `index` are."""
    return directory / f"pytorch_model_fsdp_{index}"


def _optimizer_folder(directory: Path, index: int) -> Path:
    return directory / f"optimizer_{index}"


# Ranks agree on what is written in the background over a separate group, besides what training exchanges.
_background: Any = None


def save(
    directory: Path,
    models: list[nn.Module],
    optimizers: list[torch.optim.Optimizer],
    asynchronous: bool = False,
) -> Callable[[], None] | None:
    """Write every rank's part of all weights and optimizer states.

    Args:
        directory: the same for every rank, on a file system that all reach.
        models, optimizers: with divided parameters.
        asynchronous: copy them, and write when what is returned is called, on every rank, in any thread.

    Raises:
        ValueError: the directory is not there on this rank.
    """
    if not directory.is_dir():
        raise ValueError(
            f"{directory} is not there on this rank: a sharded checkpoint needs a file system that all machines share"
        )
    parts: list[tuple[dict[str, Any], Path]] = [
        ({"model": nn.Module.state_dict(model)}, model_folder(directory, i)) for i, model in enumerate(models)
    ]
    rests = []
    for i, optimizer in enumerate(optimizers):
        tensors, rest = _parted(optimizer)
        parts.append(({"optimizer": tensors}, _optimizer_folder(directory, i)))
        rests.append((rest, directory / _REST.format(i)))

    def write(group: Any) -> None:
        for state, folder in parts:
            state_dict_saver.save(state, checkpoint_id=folder, process_group=group)
        for rest, path in rests if dist.get_rank() == 0 else []:
            torch.save(rest, path)

    if not asynchronous:
        with guard.collective("a sharded checkpoint"):
            write(None)
        return None
    parts = [({kind: _copied(tensors) for kind, tensors in state.items()}, folder) for state, folder in parts]
    rests = [(copy.deepcopy(rest), path) for rest, path in rests]
    group = _group_of_the_background()
    return lambda: write(group)


def _parted(optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """An optimizer's tensors by number and name, and its state with descriptions in their places."""
    state = optimizer.state_dict()
    tensors = {
        f"{number}.{name}": value
        for number, values in state["state"].items()
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    state["state"] = {
        number: {k: _Described.of(v) if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        for number, values in state["state"].items()
    }
    return tensors, state


def _copied(tensors: dict[str, Any]) -> dict[str, Any]:
    """Copies on the host of this rank's parts; torch's function shares what is on the host already."""
    on_host = {
        n: t.clone() if isinstance(t, torch.Tensor) and t.device.type == "cpu" else t
        for n, t in tensors.items()
    }
    return _offload_state_dict_to_cpu(on_host)


def _group_of_the_background() -> Any:
    global _background
    if _background is None:
        with guard.collective("a group for saving in the background"):
            _background = dist.new_group(backend="gloo")
    return _background


def load(directory: Path, models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    """Read what `save` wrote, on any number of ranks.

    Raises:
        ValueError: the checkpoint is of other models or optimizers.
    """
    for i, model in enumerate(models):
        state = {"model": nn.Module.state_dict(model)}
        _read(state, model_folder(directory, i), type(model).__name__)
        nn.Module.load_state_dict(model, state["model"])
    for i, optimizer in enumerate(optimizers):
        name = type(optimizer).__name__
        path = directory / _REST.format(i)
        if not path.is_file():
            raise ValueError(
                f"the checkpoint {directory} holds no optimizer number {i} for the {name} prepared here"
            )
        state = torch.load(path, map_location="cpu", weights_only=True)
        parameters = [p for g in optimizer.param_groups for p in g["params"]]
        if len(parameters) != sum(len(g["params"]) for g in state["param_groups"]):
            raise ValueError(
                f"the optimizer number {i} in {directory} holds another number of parameters than {name}"
            )
        tensors: dict[str, torch.Tensor] = {}
        for number, values in state["state"].items():
            for key, value in values.items():
                if _Described.is_one(value):
                    empty = _Described.empty(value)
                    follows = empty.ndim > 0 and empty.shape == parameters[number].shape
                    tensors[f"{number}.{key}"] = divided_like(empty, parameters[number]) if follows else empty
        _read({"optimizer": tensors}, _optimizer_folder(directory, i), name)
        state["state"] = {
            number: {k: tensors.get(f"{number}.{k}", v) for k, v in values.items()}
            for number, values in state["state"].items()
        }
        optimizer.load_state_dict(state)


def _read(state: dict[str, Any], folder: Path, name: str) -> None:
    if not folder.is_dir():
        raise ValueError(f"the checkpoint holds no {folder.name} for the {name} that was prepared here")
    check_description(folder)
    try:
        with guard.collective("a sharded checkpoint"):
            state_dict_loader.load(state, checkpoint_id=folder)
    except CheckpointException as error:
        causes = [c[0] if isinstance(c, tuple) else c for c in error.failures.values()]
        raise ValueError(f"the sharded weights in {folder} do not fit {name}: {causes[0]}") from None


class _Described:
    """A tensor's shape and type in a file that holds no tensors, as a dict that loads with weights_only."""

    @staticmethod
    def of(tensor: torch.Tensor) -> dict[str, Any]:
        return {"__tensor__": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}

    @staticmethod
    def is_one(value: Any) -> bool:
        return isinstance(value, dict) and "__tensor__" in value

    @staticmethod
    def empty(value: dict[str, Any]) -> torch.Tensor:
        return torch.empty(value["__tensor__"], dtype=getattr(torch, value["dtype"]))
