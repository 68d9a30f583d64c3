"""One weights file of a checkpoint of which every process wrote its part."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from pathlib import Path
from typing import Any

from accelify.installing import install_command
from accelify.runtime.launch.settings import LaunchError

_FOLDER = "pytorch_model_fsdp_"
# What weights are called that are no safetensors: nobody means a folder by such a name.
_PICKLED = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pth"})
_WHOLE = ("model*.safetensors", "pytorch_model*.bin")


def merge(checkpoint: Path, output: Path, index: int | None = None) -> tuple[Path, int, int]:
    """Write the weights of a checkpoint into one safetensors file, also where it has them whole.

    Args:
        checkpoint: what `save_state` or `save_model` wrote, or a folder of torch.distributed.checkpoint.
        output: the file; a folder gets a model.safetensors.
        index: number of the model, where the checkpoint has several.

    Returns:
        The file, the number of its tensors and of their bytes. All of them are in memory on the way.

    Raises:
        LaunchError: there is no checkpoint, it has several models and `index` is None, it is damaged, the output is
            there already or is to be of another kind, or torch is missing.
    """
    if importlib.util.find_spec("torch") is None:
        raise LaunchError(
            f"torch is not installed, and no checkpoint can be read without it: {install_command('runtime')}."
        )
    from accelify.runtime import files

    if output.suffix != ".safetensors":
        if output.suffix in _PICKLED and not output.is_dir():
            raise LaunchError(
                f"{output} cannot be written: the weights become a safetensors file; name "
                f"{output.with_suffix('.safetensors')}, or a folder."
            )
        output = output / "model.safetensors"
    if output.exists():
        raise LaunchError(f"{output} is there already: delete it, or name another file.")
    weights = _weights(checkpoint, index)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        files.save(weights, output, safe_serialization=True)
    except OSError as error:
        raise LaunchError(f"{output} cannot be written: {error.strerror or error}.") from None
    return output, len(weights), sum(t.numel() * t.element_size() for t in weights.values())


def _weights(checkpoint: Path, index: int | None) -> dict[str, Any]:
    if checkpoint.is_file():
        raise LaunchError(
            f"{checkpoint} is a file: name the folder of a checkpoint, which has the parts to merge."
        )
    if not checkpoint.is_dir():
        raise LaunchError(f"There is no folder {checkpoint}.")
    if (checkpoint / ".metadata").is_file():
        return _read_shards(checkpoint)
    shards = {
        _number(path): path for path in checkpoint.glob(f"{_FOLDER}*") if (path / ".metadata").is_file()
    }
    if shards:
        return _read_shards(_chosen(shards, checkpoint, index))
    zero = {
        _number(path): path for path in checkpoint.glob("model_*") if any(path.glob("*/*_optim_states.pt"))
    }
    if zero:
        return _read_zero(_chosen(zero, checkpoint, index))
    named = {0: checkpoint, **{_number(path): path for path in checkpoint.glob("model_*")}}
    whole = {number: path for number, path in named.items() if any(any(path.glob(one)) for one in _WHOLE)}
    if whole:
        return _read_whole(_chosen(whole, checkpoint, index))
    raise LaunchError(f"{checkpoint} holds no checkpoint: give the folder that save_state wrote.")


def _number(path: Path) -> int:
    tail = path.name.rpartition("_")[2]
    return int(tail) if tail.isdecimal() else 0


def _chosen(folders: dict[int, Path], checkpoint: Path, index: int | None) -> Path:
    if index is None and len(folders) == 1:
        return next(iter(folders.values()))
    if index is None or index not in folders:
        numbers = ", ".join(map(str, sorted(folders)))
        raise LaunchError(f"{checkpoint} holds models {numbers}: choose one with --model.")
    return folders[index]


def _read_shards(folder: Path) -> dict[str, Any]:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    from ..backends.shard_files import check_description

    state_dict_loader: Any = importlib.import_module("torch.distributed.checkpoint.state_dict_loader")
    import torch

    try:
        check_description(folder)
        entries = FileSystemReader(folder).read_metadata().state_dict_metadata
        known = {name: e for name, e in entries.items() if isinstance(e, TensorStorageMetadata)}
        chosen = {name: e for name, e in known.items() if name.startswith("model.")} or known
        weights = {name: torch.empty(e.size, dtype=e.properties.dtype) for name, e in chosen.items()}
        with warnings.catch_warnings():
            # That there is no group of processes here is meant.
            warnings.simplefilter("ignore", UserWarning)
            state_dict_loader.load(weights, checkpoint_id=folder, no_dist=True)
    except (CheckpointException, OSError, RuntimeError, EOFError, ValueError) as error:
        causes = getattr(error, "failures", {})
        cause = next(iter(causes.values()), error)
        cause = cause[0] if isinstance(cause, tuple) else cause
        stated = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise LaunchError(f"The checkpoint in {folder} is damaged and cannot be read ({stated}).") from None
    return {name.removeprefix("model."): tensor for name, tensor in weights.items()}


def _read_whole(folder: Path) -> dict[str, Any]:
    """The weights of a folder in which they are whole already, as one process or DDP writes them."""
    from accelify.runtime.weights import read_weights

    try:
        return read_weights(folder)
    except (OSError, ValueError) as error:
        raise LaunchError(f"The checkpoint in {folder} is damaged: {error}.") from None


def _read_zero(folder: Path) -> dict[str, Any]:
    try:
        zero: Any = importlib.import_module("deepspeed.utils.zero_to_fp32")
    except ImportError:
        raise LaunchError(
            f"{folder} was written by DeepSpeed, which is not installed here: {install_command('deepspeed')}."
        ) from None
    from ..backends.deepspeed_files import only_data

    tag = next(path.parent.name for path in folder.glob("*/*_optim_states.pt"))
    try:
        with only_data():
            weights: dict[str, Any] = zero.get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=tag)
    except (OSError, RuntimeError, ValueError) as error:
        raise LaunchError(f"The checkpoint in {folder} is damaged: {error}.") from None
    return dict(weights)
