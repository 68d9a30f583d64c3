"""Landlock: the kernel's word that a process and all it starts write in some places only.

It can be taken by any user, and never be given back. Reading is left free.
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


def restrict(writable: Iterable[str]) -> bool:
    """From now on this process can write below `writable` only, and signal nothing but itself and what it starts.

    Returns:
        Whether there is a Landlock to hold it.
    """
    if not version():
        return False
    handled = _WRITE_FILE | _FOLDERS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        if version() >= since:
            handled |= right
    rules = _rules(handled, 0, _ABSTRACT_SOCKETS | _SIGNALS)
    try:
        for path in writable:
            with contextlib.suppress(OSError):
                _allow(rules, path, handled)
        _enforce(rules)
    finally:
        os.close(rules)
    return True


def restrict_ports(ports: Iterable[int]) -> None:
    """From now on TCP goes to these ports and to those that the system hands out, and nowhere else.

    Processes of one run find each other at ports of the second kind; a port is all that Landlock looks at.
    """
    if version() < 4:
        return
    rules = _rules(0, _BIND_TCP | _CONNECT_TCP, 0)
    try:
        for port in {0, *ports, *_handed_out()}:
            linux.syscall(_ADD, rules, _PORT, struct.pack("QQ", _BIND_TCP | _CONNECT_TCP, port), 0)
        _enforce(rules)
    finally:
        os.close(rules)


def _handed_out() -> range:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return range(first, last + 1)


def _rules(files: int, network: int, scoped: int) -> int:
    attributes = struct.pack("QQQ", files, network, scoped)
    size = 8 if version() < 4 else 16 if version() < 6 else 24
    return linux.syscall(_CREATE, attributes[:size], size, 0)


def _enforce(rules: int) -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.syscall(_RESTRICT, rules, 0)


def _allow(rules: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _WRITE_FILE | _TRUNCATE | _IOCTL
        # The structure is packed: no room between its two members.
        linux.syscall(_ADD, rules, _PATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
