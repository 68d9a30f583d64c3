"""What a run has changed: every file, folder and link in its layers, compared with the real file system."""

from __future__ import annotations

import filecmp
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_CACHES = {"__pycache__"}
_OPAQUE = "user.overlay.opaque"


@dataclass(frozen=True)
class Change:
    """One path that a run changed.

    Args:
        path: as the script sees it.
        kind: "removed" for what is really there and was not at the end.
        content: where the content can be read, as long as the run's folder is there; for a link, the link itself.
    """

    path: str
    kind: Literal["file", "folder", "removed", "link"]
    content: Path


def layer_changes(layers: Sequence[tuple[str, str]], replaced: Mapping[str, str]) -> list[Change]:
    """The changes that upper layers of overlays hold, by path.

    Args:
        layers: for each overlay its path and its upper layer.
        replaced: files that were in another's place from the start, which are no change.
    """
    found: list[Change] = []
    for path, upper in layers:
        found += _folder_changes(path, Path(upper))
    return sorted((change for change in found if not _as_placed(change, replaced)), key=lambda c: c.path)


def _as_placed(change: Change, replaced: Mapping[str, str]) -> bool:
    source = replaced.get(change.path)
    return source is not None and change.kind == "file" and filecmp.cmp(source, change.content, shallow=False)


def _folder_changes(path: str, upper: Path) -> Iterator[Change]:
    for entry in sorted(opened(upper), key=lambda entry: entry.name):
        real, content = os.path.join(path, entry.name), Path(entry.path)
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(found.st_mode):
            # A whiteout: a device without a number.
            yield Change(real, "removed", content)
        elif stat.S_ISLNK(found.st_mode):
            yield Change(real, "link", content)
        elif stat.S_ISREG(found.st_mode):
            if not _opened_only(found, real):
                yield Change(real, "file", content)
        elif stat.S_ISDIR(found.st_mode) and entry.name not in _CACHES:
            if not os.path.isdir(real) or os.path.islink(real):
                yield Change(real, "folder", content)
            elif _is_opaque(entry.path):
                yield from _hidden(real, content)
            yield from _folder_changes(real, content)


def opened(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder of the run's, also where the script has taken the permission away."""
    try:
        if not os.access(folder, os.R_OK | os.X_OK):
            os.chmod(folder, 0o700)
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _opened_only(found: os.stat_result, real: str) -> bool:
    """Whether a file came into the layer since it was opened for writing, and then nothing was written."""
    try:
        original = os.lstat(real)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns, found.st_mode) == (
        original.st_size, original.st_mtime_ns, original.st_mode,
    )  # fmt: skip


def _is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _hidden(real: str, content: Path) -> Iterator[Change]:
    """A folder that was removed and made again: its previous content is gone."""
    try:
        names = sorted(os.listdir(real))
    except OSError:
        return
    for name in names:
        if not os.path.lexists(content / name):
            yield Change(os.path.join(real, name), "removed", content / name)
