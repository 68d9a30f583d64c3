"""Two hosts: two network namespaces with an address each, joined by one cable that can be pulled and slowed down."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Host 0 has 10.98.0.1, host 1 has 10.98.0.2."""

    def __init__(self) -> None:
        self.names = [f"accelify{os.getpid()}h{number}" for number in (0, 1)]
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "link",
            "add",
            "wire0",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "wire1",
            "netns",
            self.names[1],
        )
        for number, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"10.98.0.{number + 1}/24", "dev", f"wire{number}")
            ip("-n", name, "link", "set", f"wire{number}", "up")

    def slow(self, rate: str) -> None:
        """Let no more than so much through, in both directions (tc's words: "1mbit")."""
        if not shutil.which("tc"):
            pytest.skip("a slow link needs the tc tool")
        for number, name in enumerate(self.names):
            words = ["qdisc", "add", "dev", f"wire{number}", "root", "tbf", "rate", rate]
            command = ["tc", "-n", name, *words, "burst", "32kbit", "latency", "400ms"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"this kernel has no tbf: {done.stderr.strip()}")

    def cut(self) -> None:
        ip("-n", self.names[1], "link", "set", "wire1", "down")

    def plug_in(self) -> None:
        ip("-n", self.names[1], "link", "set", "wire1", "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextlib.contextmanager
def two_hosts() -> Iterator[Hosts]:
    """The hosts; skips the test where the machine does not allow them."""
    if not sys.platform.startswith("linux") or not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux, the ip tool and root")
    made = None
    try:
        made = Hosts()
        yield made
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
    finally:
        if made is not None:
            made.remove()
