"""The root that a run sees in its mount namespace: every real file, and each write in a layer of the run.

A folder without mounts below it becomes an overlay. One with mounts below cannot be a lower layer in a user namespace
(the kernel locks the mounts to each other), so it is made again, and its entries are put in one by one.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence

from accelify.verify.sandbox import linux
from accelify.verify.sandbox.mounts import VIRTUAL, Mount, read_mounts

LAYERS = "layers.json"
"""File of a run's folder: for each overlay its path and the folder that takes its writes."""
WORK = "work"
"""Folder of a run's folder: where overlays prepare files; of no use afterwards."""
SMALL = 1024 * 1024
"""Bytes up to which a file beside a mount point is copied; a larger one is there, but cannot be written."""
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_ACCELERATORS = ("nvidia*", "nvidia-caps/*", "dri/*", "kfd", "accel*", "infiniband/*")
_SELDOM = ("/boot", "/etc", "/usr", "/opt", "/srv", "/media", "/lost+found", "/run", "/var", "/snap")
# Where a root that is no root writes for the whole machine, since the kernel looks at the user's number alone.
_PROC_LOCKED = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "driver")


class Root:
    """Builds the root of one run; to be called in that run's user, mount and process namespace.

    Args:
        home: the run's folder; nothing of it can be seen from within except `real`.
        real: folders that stay the real ones, where the run may write.
        replaced: path to the file that is seen in its place.
        folders: where the run is likely to write.
    """

    def __init__(
        self, home: str, real: Sequence[str], replaced: Mapping[str, str], folders: Sequence[str]
    ) -> None:
        self.home = home
        self.real = real
        self.replaced = replaced
        self.folders = folders
        self.root = os.path.join(home, "root")
        self.layers: list[tuple[str, str]] = []
        self._names = map(str, itertools.count())

    def build(self) -> None:
        """Put everything in place; the old root is still the root."""
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        mounts = read_mounts()
        os.mkdir(os.path.join(self.home, WORK))
        made = os.path.join(self.home, "made")
        os.mkdir(made)
        linux.mount("tmpfs", made, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0700")
        self._place("/", mounts)
        self._system()
        self._real_folders()
        with open(os.path.join(self.home, LAYERS), "w") as file:
            json.dump(self.layers, file)

    def writable(self) -> list[str]:
        """Where the run may write, as it sees the paths; asked when it is entered."""
        return [*(path for path, _ in self.layers), *self.real, "/dev", "/proc"]

    def enter(self) -> None:
        """Make it the root."""
        linux.pivot_root(self.root)

    def _place(self, path: str, mount: Mount) -> None:
        mount = mount.over(path)
        if path in ("/proc", "/sys", "/dev") or mount.kind in VIRTUAL:
            return
        if mount.below(path):
            self._by_entries(path, mount)
        elif "ro" in mount.options:
            linux.mount(path, self.root + path, flags=linux.MS_BIND)
        else:
            try:
                self._overlay(path, path, self._within(self.replaced, path), self._within(self.folders, path))
            except OSError as error:
                # What the run is about has to be writable, and the copy in the original's place.
                if self._within(self.folders, path) or self._within(self.replaced, path):
                    raise OSError(f"{path} cannot be a layer ({error})") from None
                self._as_it_is(path)

    def _as_it_is(self, path: str) -> None:
        """A file system that cannot be a lower layer: it can be read, and not written."""
        try:
            linux.mount(path, self.root + path, flags=linux.MS_BIND | linux.MS_REC)
            linux.read_only(self.root + path)
        except OSError:
            # One that has gone meanwhile, or that this user cannot reach, is as empty as it would be.
            return

    def _by_entries(self, path: str, mount: Mount) -> None:
        made = os.path.join(self.home, "made", next(self._names))
        os.makedirs(made)
        folders, files = [], []
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            entries = []
        for entry in entries:
            place = os.path.join(made, entry.name)
            with contextlib.suppress(OSError):
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), place)
                elif entry.is_dir():
                    os.mkdir(place)
                    _like(place, entry.path)
                    folders.append(entry.path)
                elif entry.is_file():
                    if not _copied(entry, place):
                        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
                        files.append(entry.path)
        direct = [name for name in self.replaced if os.path.dirname(name) == path]
        self._overlay(path, made, direct, [])
        for file in files:
            linux.mount(file, self.root + file, flags=linux.MS_BIND)
            linux.read_only(self.root + file)
        for folder in folders:
            self._place(folder, mount)

    def _overlay(self, path: str, lower: str, replaced: Sequence[str], folders: Sequence[str]) -> None:
        name = next(self._names)
        upper, work = os.path.join(self.home, "layers", name), os.path.join(self.home, WORK, name)
        os.mkdir(upper)
        os.mkdir(work)
        for folder in folders:
            _chain(upper, path, folder)
        for file in replaced:
            _chain(upper, path, os.path.dirname(file))
            place = os.path.join(upper, os.path.relpath(file, path))
            shutil.copyfile(self.replaced[file], place)
            if os.path.exists(file):
                shutil.copymode(file, place)
        _like(upper, path)
        # By descriptor, since the options of a mount are limited in length, and `:` and `,` have a meaning in them.
        descriptors = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in (lower, upper, work)]
        try:
            options = "userxattr,lowerdir={},upperdir={},workdir={}".format(
                *(f"/proc/self/fd/{descriptor}" for descriptor in descriptors)
            )
            # Copies do not wait for the disk then. It costs two folders more, and older kernels do not know it.
            fast = () if path in _SELDOM else (f"volatile,{options}",)
            for choice in (*fast, options):
                try:
                    linux.mount("overlay", self.root + path, "overlay", options=choice)
                    break
                except OSError:
                    if choice == options:
                        raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.layers.append((path, upper))

    def _within(self, names: Sequence[str] | Mapping[str, str], path: str) -> list[str]:
        return [name for name in names if inside(name, path)]

    def _system(self) -> None:
        root = self.root
        linux.mount("proc", root + "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        for name in _PROC_LOCKED:
            place = f"{root}/proc/{name}"
            if os.path.lexists(place):
                linux.mount(place, place, flags=linux.MS_BIND | linux.MS_REC)
                linux.read_only(place)
        if os.path.isdir("/sys"):
            linux.mount("/sys", root + "/sys", flags=linux.MS_BIND | linux.MS_REC)
            linux.read_only(root + "/sys")
        linux.mount("tmpfs", root + "/dev", "tmpfs", linux.MS_NOSUID, "mode=0755")
        nodes = [f"/dev/{name}" for name in _NODES]
        nodes += [node for pattern in _ACCELERATORS for node in glob.glob(f"/dev/{pattern}")]
        for node in nodes:
            if os.path.exists(node) and stat.S_ISCHR(os.stat(node).st_mode):
                os.makedirs(os.path.dirname(root + node), exist_ok=True)
                os.close(os.open(root + node, os.O_CREAT | os.O_WRONLY, 0o600))
                linux.mount(node, root + node, flags=linux.MS_BIND)
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                             ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx")):  # fmt: skip
            os.symlink(target, f"{root}/dev/{name}")
        os.mkdir(root + "/dev/shm")
        linux.mount("tmpfs", root + "/dev/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=1777")
        os.mkdir(root + "/dev/pts")
        with contextlib.suppress(OSError):
            options = "newinstance,ptmxmode=0666,mode=0620"
            linux.mount("devpts", root + "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, options)

    def _real_folders(self) -> None:
        linux.mount("tmpfs", self.root + self.home, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755")
        for folder in self.real:
            os.makedirs(self.root + folder, exist_ok=True)
            linux.mount(folder, self.root + folder, flags=linux.MS_BIND)


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or is in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _like(place: str, original: str) -> None:
    """Give a folder the owner and the mode of the one it represents, as far as this user can."""
    found = os.stat(original)
    mode = stat.S_IMODE(found.st_mode)
    try:
        os.chown(place, found.st_uid, found.st_gid)
    except OSError:
        # It belongs to this user now, where the original does not: what cannot be written must not become writable.
        if not os.access(original, os.W_OK):
            mode &= ~0o222
    os.chmod(place, mode)


def _chain(upper: str, path: str, folder: str) -> None:
    """Make the folders between the overlay at `path` and `folder` in its upper layer."""
    place, original = upper, path
    for part in os.path.relpath(folder, path).split("/"):
        place, original = os.path.join(place, part), os.path.join(original, part)
        if part != "." and not os.path.isdir(place):
            os.mkdir(place)
            if os.path.isdir(original):
                _like(place, original)


def _copied(entry: os.DirEntry[str], place: str) -> bool:
    found = entry.stat()
    if found.st_uid != os.getuid() or found.st_size > SMALL:
        return False
    try:
        shutil.copy2(entry.path, place)
    except OSError:
        return False
    return True
