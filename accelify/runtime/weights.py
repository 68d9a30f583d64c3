"""Weights of models in files: reading what `save_model` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .backends.base import Backend


def load_weights(
    model: torch.nn.Module,
    directory: str | Path,
    strict: bool = True,
    engine: Backend | None = None,
    **kwargs: Any,
) -> None:
    """Load what `save_model` wrote, in one file or several; names that tied weights left out are no error.

    Args:
        model: the script's, or a prepared one together with its `engine`.
        directory: where `save_model` wrote to.
        strict: missing and unexpected names are errors.
        engine: whose wrapper `model` is in.
        **kwargs: for torch's `load_state_dict`.

    Raises:
        ValueError: there are no weights, or not those of this model.
    """
    directory = Path(directory)
    weights = read_weights(directory)
    wrapped = getattr(model, "_orig_mod", model)
    model = engine.unwrap(wrapped) if engine is not None else model
    try:
        if engine is not None and not kwargs:
            missing, unexpected = engine.load_state_dict(wrapped, weights, strict=False)
        else:
            missing, unexpected = model.load_state_dict(weights, strict=False, **kwargs)
    except RuntimeError as error:
        raise ValueError(f"the weights in {directory} do not fit {type(model).__name__}: {error}") from None
    state = dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )
    there = {_identity(state[n]) for n in weights if n in state}
    missing = [n for n in missing if n not in state or _identity(state[n]) not in there]
    if strict and (missing or unexpected):
        what = f"lack {', '.join(missing[:5])}" if missing else f"have {', '.join(unexpected[:5])} besides"
        raise ValueError(f"the weights in {directory} do not fit {type(model).__name__}: they {what}")


def _identity(tensor: torch.Tensor) -> Any:
    """The same for tied weights: one object, or one piece of memory."""
    in_memory = type(tensor.data) is torch.Tensor and tensor.device.type in ("cpu", "cuda", "mps")
    return (tensor.data_ptr(), tensor.shape) if in_memory else id(tensor)


def read_weights(directory: Path) -> dict[str, Any]:
    """All weights in a directory written by `save_model`."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        index = directory / f"{stem}.{suffix}.index.json"
        single = directory / f"{stem}.{suffix}"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            if any(Path(name).name != name for name in names):
                raise ValueError(f"{index} names files of other directories, and is not read")
        elif single.is_file():
            names = [single.name]
        else:
            continue
        weights: dict[str, Any] = {}
        for name in names:
            weights.update(_read_tensors(directory / name))
        return weights
    raise ValueError(f"there are no weights in {directory}")


def _read_tensors(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
