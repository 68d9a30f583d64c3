"""Writing files whole or not at all, and giving memory back."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and goes away when not."""
    with whole_files() as place:
        yield place(Path(path))


@contextlib.contextmanager
def whole_files() -> Iterator[Callable[[Path], Path]]:
    """Several files that are written all or none: `place(path)` is the temporary path beside `path`; all take their
    places when the block ends well, and none does when not.

    Raises:
        OSError: what the system refused in the block or after, with the path that was to be written.
    """
    temporaries: dict[Path, Path] = {}
    current: Path | None = None

    def place(path: Path) -> Path:
        nonlocal current
        current = path
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporaries[path] = Path(name)
        return temporaries[path]

    try:
        yield place
        for path, temporary in temporaries.items():
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
        for directory in {path.parent for path in temporaries}:
            sync_directory(directory)
    except BaseException as error:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and current is not None:
            raise OSError(error.errno, error.strerror, str(current)) from error
        raise


def checksum(path: Path) -> int:
    """The CRC-32 of a file's contents, by which a damaged one is known."""
    found = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            found = zlib.crc32(part, found)
    return found


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path or ".", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def save(obj: Any, f: Any, safe_serialization: bool = False) -> None:
    """`torch.save`, or a safetensors file; a path is written whole or not at all."""
    if not isinstance(f, (str, os.PathLike)):
        torch.save(obj, f)
        return
    with whole_file(os.fspath(f)) as temporary:
        _write(obj, temporary, safe_serialization)


def _write(obj: Any, path: Path, safe: bool) -> None:
    if safe:
        save_tensors(obj, path)
    else:
        save_pickled(obj, path)


def save_pickled(obj: Any, path: Path) -> None:
    """`torch.save`. Where the system refuses, such as on a full disk, the error is the system's: torch's would be
    about an offset that it did not expect."""
    with open(path, "wb") as file:
        try:
            torch.save(obj, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """A safetensors file. Tensors that share memory are written once, under their first name."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    retained = {name: t.detach().contiguous() for name, t in without_shared(tensors).items()}
    try:
        save_file(retained, str(path), metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


def without_shared(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of names for the same tensor, such as tied weights, the first only."""
    seen: set[tuple[Any, ...]] = set()
    retained: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        retained[name] = tensor
    return retained


def size_in_bytes(size: int | str) -> int:
    """A size such as "10GB" or "512MiB" as a number of bytes.

    Raises:
        ValueError: it is not a size.
    """
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f'a size is written like "10GB" or "512MiB", not {size!r}')
    return int(float(match[1]) * _UNITS[match[2].upper()])


# Names of what `save_weights` writes: one file, or the index of several.
SAFE_WEIGHTS_NAME = "model.safetensors"
SAFE_WEIGHTS_INDEX_NAME = f"{SAFE_WEIGHTS_NAME}.index.json"
WEIGHTS_NAME = "pytorch_model.bin"
WEIGHTS_INDEX_NAME = f"{WEIGHTS_NAME}.index.json"


def save_weights(weights: dict[str, Any], directory: Path, max_shard_size: int | str, safe: bool) -> None:
    """Write weights into a directory: one file, or several of at most `max_shard_size` and an index."""
    if directory.is_file():
        raise ValueError(f"{directory} is a file, not a directory to save a model in")
    directory.mkdir(parents=True, exist_ok=True)
    stem, suffix = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    tensors = {k: v for k, v in weights.items() if isinstance(v, torch.Tensor)}
    parts = _shards(without_shared(tensors) if safe else tensors, size_in_bytes(max_shard_size))
    names = [
        f"{stem}.{suffix}" if len(parts) == 1 else f"{stem}-{i:05d}-of-{len(parts):05d}.{suffix}"
        for i in range(1, len(parts) + 1)
    ]
    index = directory / f"{stem}.{suffix}.index.json"
    with whole_files() as place:
        for name, part in zip(names, parts, strict=True):
            _write(part, place(directory / name), safe)
        if len(parts) > 1:
            total = sum(t.numel() * t.element_size() for part in parts for t in part.values())
            places = {key: name for name, part in zip(names, parts, strict=True) for key in part}
            text = json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2)
            place(index).write_text(text)
    if len(parts) == 1:
        index.unlink(missing_ok=True)
    for old in directory.glob(f"{stem}*.{suffix}"):
        if old.name not in names and re.fullmatch(rf"{stem}(-\d{{5}}-of-\d{{5}})?\.{suffix}", old.name):
            old.unlink()


def _shards(tensors: dict[str, torch.Tensor], limit: int) -> list[dict[str, torch.Tensor]]:
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        own = tensor.numel() * tensor.element_size()
        if parts[-1] and size + own > limit:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += own
    return parts


def release_memory(*objects: Any) -> list[Any]:
    """Free cached memory; returns None for each argument, to be assigned to the names that refer to them."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return [None] * len(objects)
