"""Several machines: which network they meet over, and noticing when one is cut off.

A process that waits for another machine in a collective waits for minutes (NCCL) or for half an hour (gloo) before it
gives up, because a cut-off machine sends nothing at all. So the launchers inform each other, through the store of their
rendezvous, that they are alive; a machine that was not heard of for too long ends the processes that wait for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

_BEAT = 1.0


def own_address(main_address: str, port: int) -> str | None:
    """This machine's address on the network that reaches the first one; None where it is not known."""
    try:
        kind, _, _, _, place = socket.getaddrinfo(main_address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the system only chooses the way.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_of(address: str) -> str | None:
    """The network interface with that IPv4 address; None where it is not known."""
    try:
        import fcntl
    except ImportError:
        return None
    ask_for_address = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), ask_for_address, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


def reachable(host: str, port: int, patience: float) -> bool:
    """Whether something answers there within `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host, port), timeout=2):
                return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)


def warn_workers(folder: Path) -> None:
    """Hand the queue's warning on to the processes of this launcher; one that is still starting finds a note of it."""
    (folder / "preempted").touch()
    for path in folder.glob("*.pid"):
        if _parent(int(path.stem)) in (None, os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.stem), signal.SIGUSR1)


def end_workers(folder: Path) -> int:
    """Kill the processes of this launcher whose numbers are in `folder`; how many there were.

    They are stuck in a collective that never ends, where a softer signal waits with them.
    """
    ended = 0
    for path in folder.glob("*.pid"):
        number = int(path.stem)
        if _parent(number) in (None, os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
                ended += 1
        path.unlink(missing_ok=True)
    return ended


def _parent(number: int) -> int | None:
    try:
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None if sys.platform != "linux" else -1


class Watch:
    """Reports to the other launchers that this machine is alive, and notices when one of them is not.

    Args:
        host, port: of the rendezvous, on the first machine.
        machine, machines: number of this machine, and how many there are.
        patience: seconds without a sign of life after which a machine counts as lost.
        on_loss: called with a sentence, once each time a machine is lost.
    """

    def __init__(
        self,
        host: str,
        port: int,
        machine: int,
        machines: int,
        patience: float,
        on_loss: Callable[[str], None],
    ) -> None:
        self.host, self.port = host, port
        self.machine, self.machines = machine, machines
        self.patience = patience
        self.on_loss = on_loss
        self.lost: str | None = None
        # Number of the last sign of life and when it came, for each machine that was ever heard of.
        self._heard: dict[int, tuple[int, float]] = {}
        self._addresses: dict[int, str] = {}
        self._answered: float | None = None
        self._missing: set[int] = set()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._beat, self._judge)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Report that this machine is done, so that its silence is no loss."""
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout=3)

    def _beat(self) -> None:
        # Separate from judging: on a dead network every call here may hang.
        store: Any = None
        while True:
            ending = self._ending.is_set()
            try:
                if store is None:
                    store = self._connect()
                self._exchange(store, ending)
            except (RuntimeError, OSError, ValueError):
                store = None
            if ending or (self._ending.wait(_BEAT) and store is None):
                return

    def _connect(self) -> Any:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        host = "localhost" if self.machine == 0 else self.host
        wait = timedelta(seconds=max(2.0, self.patience / 2))
        store = TCPStore(host, self.port, is_master=False, wait_for_workers=False, timeout=wait)
        address = own_address(self.host, self.port) or socket.gethostname()
        store.set(f"accelify/address/{self.machine}", address)
        return store

    def _exchange(self, store: Any, ending: bool) -> None:
        if ending:
            store.add(f"accelify/done/{self.machine}", 1)
            return
        store.add(f"accelify/alive/{self.machine}", 1)
        for other in range(self.machines):
            if other == self.machine:
                continue
            count = store.add(f"accelify/alive/{other}", 0)
            if count and count != self._heard.get(other, (0, 0.0))[0]:
                self._heard[other] = (count, time.monotonic())
                self._missing.discard(other)
                if other not in self._addresses:
                    self._addresses[other] = store.get(f"accelify/address/{other}").decode()
            elif other in self._heard and store.add(f"accelify/done/{other}", 0):
                del self._heard[other]
        self._answered = time.monotonic()
        self._missing.discard(0 if self.machine else -1)

    def _judge(self) -> None:
        while not self._ending.wait(_BEAT / 2):
            now = time.monotonic()
            if self._answered is None:
                continue
            if now - self._answered > self.patience:
                if self.machine:
                    self._lose(0, self.host)
                continue
            for other, (_, when) in list(self._heard.items()):
                if now - when > self.patience:
                    self._lose(other, self._addresses.get(other, ""))

    def _lose(self, other: int, address: str) -> None:
        if other in self._missing or self._ending.is_set():
            return
        self._missing.add(other)
        at = f" ({address})" if address else ""
        self.lost = (
            f"machine {other}{at} was not heard of for {self.patience:g} s: it is down, or cut off from here"
        )
        self.on_loss(self.lost)
