"""The network of a trial run: off, but for the loopback. What the script tried is recorded."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from accelify.verify.observe.context import Context

_OFFLINE = {
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def offline(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make trackers and hubs work without a network, those that the user has set left out."""
    found = {name: value for name, value in _OFFLINE.items() if name not in environment}
    if environment.get("WANDB_MODE", "").lower() in ("online", "shared"):
        found["WANDB_MODE"] = "offline"
    if environment.get("MLFLOW_TRACKING_URI", "").startswith(("http:", "https:", "databricks")):
        found["MLFLOW_TRACKING_URI"] = "mlruns"
    return found


def watch(context: Context) -> None:
    """Record each attempt of this process to leave the machine, once for each address and place."""
    seen: set[tuple[str, Any]] = set()

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if not event.startswith("socket.") or context.paused:
            return
        address = _address(event, arguments)
        if address is None or is_local(address):
            return
        with context.pause():
            site = context.sites.here()
            if (address, site) not in seen:
                seen.add((address, site))
                context.emit("network", address=address, site=site)

    sys.addaudithook(on_event)


def refuse() -> None:
    """Answer as a machine without a network does, where the kernel does not do it."""

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket.") and (address := _address(event, arguments)) and not is_local(address):
            if event.startswith("socket.get") and _parsed(os.fsdecode(arguments[0])):
                return
            if event.startswith("socket.get"):
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    sys.addaudithook(on_event)


def _address(event: str, arguments: tuple[Any, ...]) -> str | None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        if arguments[0].family not in (socket.AF_INET, socket.AF_INET6):
            return None
        target = arguments[1]
        return f"{target[0]}:{target[1]}" if isinstance(target, tuple) and len(target) > 1 else None
    if event == "socket.getaddrinfo" and arguments[0]:
        host, port = os.fsdecode(arguments[0]), arguments[1]
        return f"{host}:{os.fsdecode(port) if isinstance(port, bytes) else port}" if port else host
    if event in ("socket.gethostbyname", "socket.gethostbyname_ex"):
        return os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else None
    return None


def is_local(address: str) -> bool:
    """Whether an address, with or without a port, is this machine's."""
    host = address.rpartition(":")[0] if address.count(":") == 1 else address
    if host in ("", "localhost", "ip6-localhost", socket.gethostname()):
        return True
    if address.count(":") > 1:
        host = address.rpartition(":")[0] if not _parsed(address) else address
    parsed = _parsed(host.strip("[]").partition("%")[0])
    return parsed is not None and (parsed.is_loopback or parsed.is_unspecified)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
