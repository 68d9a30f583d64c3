"""Landlock: the kernel's word that a process and all it starts write in some places only.

Any user can take on the restriction, and nobody can undo it. Reading is left free.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterable
from functools import cache

from accelify.verify.sandbox import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH, _PORT = 1, 2
_WRITE_FILE, _TRUNCATE, _IOCTL = 1 << 1, 1 << 14, 1 << 15
# Removing and making of every kind, then moving between folders (second version), and truncating (third).
_FOLDERS = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2


@cache
def version() -> int:
    """The version of the kernel's Landlock, 0 where there is none."""
    try:
        return linux.syscall(_CREATE, 0, 0, 1)
    except (OSError, AttributeError):
        return 0


def restrict(writable: Iterable[str], ports: Iterable[int] | None = None) -> bool:
    """From now on this process can write below `writable` only, and signal nothing but itself and what it starts.

    Args:
        writable: files and folders.
        ports: where TCP may go beside the ports that the system yields, at which the processes of one run find
            each other; None leaves the network as it is. Landlock looks at the port alone.

    Returns:
        Whether there is a Landlock to hold it.
    """
    if not version():
        return False
    handled = _WRITE_FILE | _FOLDERS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        if version() >= since:
            handled |= right
    network = _BIND_TCP | _CONNECT_TCP if ports is not None and version() >= 4 else 0
    attributes = struct.pack("QQQ", handled, network, _ABSTRACT_SOCKETS | _SIGNALS)
    size = 8 if version() < 4 else 16 if version() < 6 else 24
    rules = linux.syscall(_CREATE, attributes[:size], size, 0)
    try:
        for path in writable:
            with contextlib.suppress(OSError):
                _allow(rules, path, handled)
        for port in {0, *(ports or ()), *_handed_out()} if network else ():
            linux.syscall(_ADD, rules, _PORT, struct.pack("QQ", network, port), 0)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    return True


def _handed_out() -> range:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return range(first, last + 1)


def _allow(rules: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _WRITE_FILE | _TRUNCATE | _IOCTL
        # The structure is packed: no padding between its two members.
        linux.syscall(_ADD, rules, _PATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
