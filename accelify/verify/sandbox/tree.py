"""Which file a path of the script represents, where a tree of links takes the place of the real one.

The tree has a real folder for each folder that the run may have changed. Everything else in it is a link through
`Tree.through`, a link to the root: its target shows whether a link is the sandbox's, which represents a real file, or
one of the user's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from accelify.verify.sandbox.changes import Change, opened
from accelify.verify.sandbox.root import inside

_SYSTEM = ("/dev", "/proc", "/sys")
_KINDS = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
# The calls as they are before any is led away: what works for the sandbox must not go through it.
_readlink, _lstat = os.readlink, os.lstat
_symlink, _mkdir, _unlink, _rename, _replace, _chmod = (
    os.symlink,
    os.mkdir,
    os.unlink,
    os.rename,
    os.replace,
    os.chmod,
)


class Tree:
    """The tree of one run, which all its processes share.

    Args:
        home: the run's folder; what is in it is as it is.
        real: other folders where the run may really write.
    """

    def __init__(self, home: str, real: tuple[str, ...] = ()) -> None:
        self.home = home
        self.root = os.path.join(home, "tree")
        self.through = os.path.join(home, "real")
        self._noted: dict[str, tuple[int, int, int]] = {}
        self.exempt = (*real, *(os.path.join(home, name) for name in ("results", "tmp", "replaced")))

    def virtual(self, path: str) -> str | None:
        """The real path that the script means by `path`; None for one that needs no other file."""
        if not os.path.isabs(path):
            here = os.getcwd()
            within = inside(here, self.root)
            path = os.path.normpath(os.path.join(here, path))
            # More steps up than lead to the root: counted from where the tree is, to a path that is a real one.
            if within and not inside(path, self.root) and inside(path, self.home):
                path = "/"
        if path.startswith(("/proc/", "/dev/fd/")):
            # Through another process's root or folder, or an open file, they lead anywhere.
            found = os.path.realpath(path)
            if inside(found, "/proc") or not os.path.exists(found):
                return None
            path = found
        path = "/" + os.path.normpath(self._outer(path)).lstrip("/")
        if any(inside(path, folder) for folder in (*_SYSTEM, *self.exempt)):
            return None
        return path

    def physical(self, path: str, follow: bool = True) -> str:
        """Where to read what `path` names."""
        return self._found(path, follow, None)

    def private(self, path: str, content: bool, follow: bool = True) -> str:
        """Where to write what `path` names: every folder on the way is the run's, and with `content` the file, too."""
        return self._found(path, follow and content, content)

    def _found(self, path: str, follow: bool, content: bool | None) -> str:
        """Where a walk to what `path` names ends, links on the way followed."""
        name = self.virtual(path)
        if name is None:
            return path
        for _ in range(40):
            step = self._walk(name, follow, content)
            if step[0]:
                return step[1]
            name = step[1]
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _outer(self, path: str) -> str:
        if inside(path, self.root):
            return path[len(self.root) :] or "/"
        if inside(path, self.through):
            return path[len(self.through) :] or "/"
        return path

    def _walk(self, name: str, follow: bool, content: bool | None) -> tuple[bool, str]:
        """Go down the tree: (True, the file) at the end, (False, another name) where a link of the user's leads off."""
        parts = [part for part in name.split("/") if part]
        for k in range(len(parts)):
            here, rest = "/" + "/".join(parts[: k + 1]), parts[k + 1 :]
            place = self.root + here
            try:
                target = _readlink(place)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    break
                continue
            if not inside(target, self.through):
                if not rest and not follow:
                    return True, place
                target = self._outer(os.path.join(os.path.dirname(here), target))
                return False, os.path.normpath(os.path.join(target, *rest))
            real = target[len(self.through) :] or "/"
            if content is None:
                return self._real(os.path.join(real, *rest), follow)
            if not rest and not content:
                return True, place
            if os.path.isdir(real):
                self._open_up(place, real)
            elif os.path.isfile(real):
                _copy_over(place, real)
            else:
                return True, os.path.join(real, *rest)
        return True, self.root + name

    def _real(self, path: str, follow: bool) -> tuple[bool, str]:
        if follow:
            found = os.path.realpath(path)
        else:
            found = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return found == path, found

    def link(self, original: str, place: str) -> None:
        """Let `place` in the tree represent `original`; a link of the user's stays the link that it is."""
        with contextlib.suppress(OSError):
            kind = _lstat(original).st_mode
            if stat.S_ISLNK(kind):
                _symlink(_readlink(original), place)
            else:
                _symlink(self.through + original, place)

    def note(self, original: str, place: str) -> None:
        """A copy was made before the run began: what it is now is no change, whatever becomes of the original."""
        self._noted[original] = _state(place)

    def _open_up(self, place: str, real: str) -> None:
        fresh = f"{place}.accelify-{os.getpid()}-{threading.get_ident()}"
        _mkdir(fresh)
        for name in os.listdir(real):
            self.link(os.path.join(real, name), os.path.join(fresh, name))
        try:
            # A folder cannot replace a link in one step; another rank may have done it in between.
            _unlink(place)
            _rename(fresh, place)
            _chmod(place, stat.S_IMODE(os.stat(real).st_mode) | 0o700)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)

    def may_write(self, path: str) -> bool:
        """Whether a path, once every link is followed, is the run's to write."""
        found = os.path.realpath(path)
        return inside(found, self.home) or any(
            inside(found, folder) for folder in (*self.exempt, *_SYSTEM[:2])
        )

    def is_ours(self, place: str) -> bool:
        """Whether a link in the tree represents the real file of another place."""
        try:
            return inside(_readlink(place), self.through)
        except OSError:
            return False

    def changes(self, since: float, replaced: dict[str, bytes]) -> list[Change]:
        """What differs from the real files, by path; what appeared there after `since` is not the run's doing."""
        return sorted(self._changes("/", since, replaced), key=lambda change: change.path)

    def _changes(self, folder: str, since: float, replaced: dict[str, bytes]) -> Iterator[Change]:
        place = Path(self.root + folder)
        names = {entry.name for entry in opened(place)}
        for name in sorted(names - {"__pycache__"}):
            here, content = os.path.join(folder, name), place / name
            mode = _lstat(content).st_mode
            if stat.S_ISLNK(mode):
                if not self.is_ours(str(content)) or os.readlink(content) != self.through + here:
                    if not (os.path.islink(here) and os.readlink(here) == os.readlink(content)):
                        yield Change(
                            here, "link" if not self.is_ours(str(content)) else _kind(content), content
                        )
            elif stat.S_ISDIR(mode):
                if not os.path.isdir(here):
                    yield Change(here, "folder", content)
                yield from self._changes(here, since, replaced)
            elif (
                stat.S_ISREG(mode)
                and self._noted.get(here) != _state(content)
                and not _is(content, here, replaced)
            ):
                yield Change(here, "file", content)
        with contextlib.suppress(OSError):
            for name in sorted(set(os.listdir(folder)) - names - {"__pycache__"}):
                here = os.path.join(folder, name)
                found = _lstat(here)
                if (
                    any(kind(found.st_mode) for kind in _KINDS)
                    and found.st_ctime < since
                    and here != self.home
                ):
                    yield Change(here, "removed", place / name)


def _state(place: str | Path) -> tuple[int, int, int]:
    found = _lstat(place)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _kind(content: Path) -> Literal["file", "folder"]:
    return "folder" if content.is_dir() else "file"


def _is(content: Path, real: str, replaced: dict[str, bytes]) -> bool:
    if real in replaced:
        return content.read_bytes() == replaced[real]
    try:
        if os.stat(content).st_size != os.stat(real).st_size or os.path.islink(real):
            return False
        return content.read_bytes() == Path(real).read_bytes()
    except OSError:
        return False


def _copy_over(place: str, target: str) -> None:
    fresh = f"{place}.accelify-{os.getpid()}-{threading.get_ident()}"
    shutil.copy2(target, fresh)
    _replace(fresh, place)
