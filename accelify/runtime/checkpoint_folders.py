"""Checkpoints as directories: complete ones, the newest one, how one takes its place.

A checkpoint is written into a hidden directory beside the final one, synced, marked complete with a list of its files
and renamed. Whatever kills the run at whatever time, the old checkpoint or the new one is there whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import files
from .plugins import ProjectConfiguration

MARKER = "accelify-checkpoint.json"
_FORMAT = 1


def automatic_directory(config: ProjectConfiguration) -> Path:
    """Where automatically named checkpoints are.

    Raises:
        ValueError: no folder is known for them.
    """
    if config.project_dir is None:
        raise ValueError(
            "checkpoints that are named automatically need a folder: give Accelerator(project_dir=...), or the name of "
            "the checkpoint"
        )
    return Path(config.project_dir) / "checkpoints"


def numbered(directory: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of automatic naming, oldest first."""
    found = []
    for path in directory.glob("checkpoint_*"):
        match = re.fullmatch(r"checkpoint_(\d+)", path.name)
        if match and (path / MARKER).is_file():
            found.append((int(match[1]), path))
    return sorted(found)


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Nobody else writes checkpoints into `directory` until the block ends: another job there waits for it.

    Where the file system has no locks nobody waits.
    """
    handle: int | None = None
    if sys.platform != "win32":
        import fcntl

        with contextlib.suppress(OSError):
            handle = os.open(directory, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Closing it releases the lock.
        if handle is not None:
            os.close(handle)


def next_number(config: ProjectConfiguration, run: str) -> int:
    """The number of a run's next checkpoint: no other run's is overwritten, and the newest has the highest.

    Args:
        config: of the run, with automatic naming.
        run: its identity.
    """
    taken = numbered(automatic_directory(config))
    if not taken or taken[-1][0] < config.iteration:
        return config.iteration
    number, last = taken[-1]
    if _run_of(last) != run:
        print(
            f"accelify: {last.parent} holds checkpoints of another run up to {last.name}: this run's begin with "
            f"checkpoint_{number + 1}, and total_limit counts them alone"
        )
    return number + 1


def _run_of(directory: Path) -> str | None:
    try:
        return json.loads((directory / MARKER).read_text()).get("run")  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def newest(directory: Path) -> Path:
    """The newest complete checkpoint of automatic naming.

    Raises:
        ValueError: there is none.
    """
    for aside in directory.glob(".checkpoint_*.old"):
        recover(directory / aside.name[1:-4])
    found = numbered(directory)
    if not found:
        raise ValueError(
            f"there is no complete checkpoint in {directory}: call load_state where save_state has written one"
        )
    return found[-1][1]


def complete(directory: Path, facts: dict[str, Any]) -> None:
    """Make all files durable, then write the marker that lists them."""
    sizes, checksums = {}, {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with open(path, "rb") as written:
                os.fsync(written.fileno())
            name = path.relative_to(directory).as_posix()
            sizes[name], checksums[name] = path.stat().st_size, files.checksum(path)
    with files.whole_file(directory / MARKER) as temporary:
        temporary.write_text(
            json.dumps({"format": _FORMAT, **facts, "files": sizes, "checksums": checksums}, indent=1)
        )


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def put_in_place(temporary: Path, target: Path) -> None:
    """Rename; a directory that was there goes aside until the new one is, and its other files come along."""
    old = _aside(target)
    if target.exists():
        os.replace(target, old)
    os.replace(temporary, target)
    files.sync_directory(target.parent)
    if old.exists():
        _finish_replacing(old, target)


def _finish_replacing(old: Path, target: Path) -> None:
    own = _listed(old)
    for path in sorted(old.iterdir()):
        if path.name != MARKER and path.name not in own and not (target / path.name).exists():
            os.replace(path, target / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _listed(directory: Path) -> set[str]:
    """First parts of the paths that belong to the checkpoint in `directory`."""
    try:
        return {name.split("/")[0] for name in json.loads((directory / MARKER).read_text())["files"]}
    except (OSError, ValueError, KeyError):
        return set()


def recover(target: Path) -> None:
    """Finish what a run that was killed between two renames left."""
    old = _aside(target)
    if not old.exists():
        return
    if target.exists():
        _finish_replacing(old, target)
    else:
        os.replace(old, target)


def delete_old(config: ProjectConfiguration, new: Path, run: str) -> None:
    """Delete a run's oldest checkpoints over its limit; those of earlier releases do not record their run."""
    if config.automatic_checkpoint_naming and config.total_limit is not None:
        others = [path for _, path in numbered(new.parent) if path != new and _run_of(path) in (run, None)]
        for path in others[: max(0, len(others) + 1 - max(1, config.total_limit))]:
            # Unmarked first: one that is half deleted is not taken for a checkpoint.
            (path / MARKER).unlink()
            shutil.rmtree(path, ignore_errors=True)


def check(directory: Path) -> dict[str, Any]:
    """The marker of a complete checkpoint, whose files are there and have their sizes.

    Raises:
        ValueError: the directory is none, with what is wrong.
    """
    if not directory.is_dir():
        raise ValueError(f"there is no checkpoint at {directory}")
    try:
        facts = json.loads((directory / MARKER).read_text())
        listed = dict(facts["files"])
        number = facts["format"]
    except FileNotFoundError:
        raise ValueError(f"{directory} is not a complete checkpoint: it has no {MARKER}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{directory} is not a checkpoint of accelify: its {MARKER} cannot be read"
        ) from None
    if number != _FORMAT:
        raise ValueError(f"the checkpoint {directory} has format {number}; this version reads {_FORMAT}")
    for name, size in listed.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(f"the checkpoint {directory} is torn: {name} is missing or has another size")
    return facts  # type: ignore[no-any-return]


def check_contents(directory: Path, facts: dict[str, Any], part: int, parts: int) -> None:
    """Read files and compare their checksums, which checkpoints of earlier versions do not have.

    Args:
        directory: the checkpoint.
        facts: its marker.
        part, parts: which of how many readers this is, each of whom takes some of the files.

    Raises:
        ValueError: one is not what was written.
    """
    sums = facts.get("checksums", {})
    for name, written in sorted((name, sums[name]) for name in sums if name in facts.get("files", sums))[
        part::parts
    ]:
        if files.checksum(directory / name) != written:
            raise ValueError(
                f"the checkpoint {directory} is damaged: {name} is not what was written; load an older one"
            )


def view_of(directory: Path) -> tuple[str, int, int]:
    """By which ranks see that they look at the same checkpoint (a digest), and whether at the same files of it: a copy
    has another place and time."""
    marker = directory / MARKER
    state = marker.stat()
    return hashlib.blake2b(marker.read_bytes()).hexdigest(), state.st_ino, state.st_ctime_ns
