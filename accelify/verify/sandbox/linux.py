"""System calls of Linux that Python 3.11 does not offer. Every one raises OSError as the functions of `os` do."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from functools import cache

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, ipc_lock, ipc_owner, sys_nice,
# sys_resource: what root needs to reach its files. None of them reaches over the border of a user namespace.
_HARMLESS = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 14, 15, 23, 24))
_SYSCALL_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, name: str | bytes = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name) if name else None)
    return result


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; integers, bytes and pointers as arguments."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    function = libc().syscall
    function.restype = ctypes.c_long
    return _checked(function(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    _checked(libc().unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    _checked(
        libc().mount(
            os.fsencode(source), os.fsencode(target), kind.encode() if kind else None, ctypes.c_ulong(flags),
            options.encode() if options else None,
        ),
        target,
    )  # fmt: skip


def unmount(target: str, flags: int = 0) -> None:
    _checked(libc().umount2(os.fsencode(target), ctypes.c_int(flags)), target)


def read_only(target: str) -> None:
    """Make a mount and all below it read-only (Linux 5.12)."""
    attributes = struct.pack("QQQQ", 1, 0, 0, 0)
    at_fdcwd, recursive = -100, 0x8000
    syscall(_SYSCALL_MOUNT_SETATTR, at_fdcwd, os.fsencode(target), recursive, attributes, len(attributes))


def pivot_root(root: str) -> None:
    """Make `root`, a mount point, the root of this mount namespace; the old one is gone from it."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of pivot_root on {platform.machine()} is not known")
    os.chdir(root)
    syscall(number, b".", b".")
    unmount(".", MNT_DETACH)
    os.chdir("/")


def prctl(option: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(libc().prctl(ctypes.c_int(option), *words))


def effective_capabilities() -> int:
    """The capabilities in force, as bits."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1], 16) for line in status if line.startswith("CapEff")), 0)


def drop_capabilities(before: int) -> None:
    """Leave only what is harmless in a user namespace and was there before; for good, also for programs started."""
    remaining = before & _HARMLESS
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in range(last + 1):
        if not remaining >> number & 1:
            prctl(PR_CAPBSET_DROP, number)
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    header = struct.pack("Ii", 0x20080522, 0)
    low, high = remaining & 0xFFFFFFFF, remaining >> 32
    data = struct.pack("6I", low, low, 0, high, high, 0)
    _checked(libc().capset(header, data))
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def loopback_up() -> None:
    """Bring the loopback device of a fresh network namespace up."""
    siocsifflags, up_and_running = 0x8914, 0x1 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, siocsifflags, struct.pack("16sh14x", b"lo", up_and_running))
