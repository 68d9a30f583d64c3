"""Descriptions of sharded checkpoints, read without running anything that a file asks for.

`.metadata` of torch.distributed.checkpoint is a pickle, which torch loads as it is; a pickle can call any function. So
it is read first with only the classes that such a description is made of, and one that names another is refused.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

_METADATA = "torch.distributed.checkpoint.metadata"
_NAMES = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.distributed.checkpoint.filesystem", "_StoragePrefix"),
    ("torch", "Size"),
    ("torch", "device"),
    ("torch.serialization", "_get_layout"),
    ("torch._utils", "_rebuild_dtype"),
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "list"),
    ("builtins", "dict"),
    ("builtins", "tuple"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
}


class _Described(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NAMES or _is_dtype(module, name) or _is_description(module, name):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _is_dtype(module: str, name: str) -> bool:
    import torch

    kinds = (torch.dtype, torch.layout, torch.memory_format)
    return module == "torch" and isinstance(getattr(torch, name, None), kinds)


def _is_description(module: str, name: str) -> bool:
    """Whether it is a class of torch's module for such descriptions, and not what that module imports."""
    if module != _METADATA:
        return False
    from torch.distributed.checkpoint import metadata

    found = getattr(metadata, name, None)
    return isinstance(found, type) and found.__module__ == _METADATA


def check_description(folder: Path) -> None:
    """See that a sharded checkpoint's description holds nothing but descriptions of tensors.

    Args:
        folder: with the shards and their `.metadata`.

    Raises:
        ValueError: it asks for something else, or describes objects, which torch would load by pickle.
        OSError: it cannot be read.
    """
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    path = folder / ".metadata"
    try:
        described: Any = _Described(io.BytesIO(path.read_bytes())).load()
        entries = described.state_dict_metadata.values()
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is no description of a checkpoint, and is not loaded: {error}") from None
    if any(isinstance(entry, BytesStorageMetadata) for entry in entries):
        raise ValueError(f"{path} describes objects besides tensors, and is not loaded")
