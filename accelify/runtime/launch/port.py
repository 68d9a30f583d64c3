"""Ports of this machine for rank 0 to listen on."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A free port that nobody else gets until the block ends.

    It is bound but not listened on, and for being shared: torch's TCPStore, which shares as well, can listen on it,
    while the system passes it to no other process that asks for any free port or that connects somewhere.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port


def refusal(port: int) -> str | None:
    """Why nothing can listen on a port of this machine, such as that another program does; None: it is free.

    What a previous job has left (TIME_WAIT) is no hindrance, as it is none to torch's store.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else str(error.strerror).lower()
    return None
