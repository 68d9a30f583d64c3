"""The port that is held for rank 0."""

import socket

import pytest

from accelify.runtime.launch.port import reserved_port


def test_it_is_held() -> None:
    with reserved_port() as port, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_two_differ() -> None:
    with reserved_port() as one, reserved_port() as other:
        assert one != other


def test_rank_0_can_listen_on_it() -> None:
    dist = pytest.importorskip("torch.distributed")
    with reserved_port() as port:
        store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        store.set("key", "value")
        assert store.get("key") == b"value"
