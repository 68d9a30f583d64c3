"""The few bytes that ranks exchange before a collective, and tensors that travel in them."""

from __future__ import annotations

import functools
import hashlib
import sys
from typing import Any

import torch

# Bytes of a tensor in the message, and of all ranks' together: where it is not known what comes, and at most.
_ROOM = 16384
_ROOM_OF_ALL = 65536
# And where the last time something smaller came.
_LEAST = 1024
_MOST_OF_ALL = 1 << 21
# Whole numbers of a message's head: how many collectives there were, and a digest of this one.
_HEAD = 2


def say(sentence: str) -> None:
    """Print a sentence about ranks on standard error."""
    print(f"accelify: {sentence}", file=sys.stderr, flush=True)


def describe(item: Any) -> str:
    """A tensor as type and shape, anything else as it is."""
    if isinstance(item, torch.Tensor):
        return _described(item.dtype, item.shape)
    return str(item)


def _described(kind: torch.dtype, shape: torch.Size) -> str:
    return f"{str(kind).removeprefix('torch.')}{list(shape)}"


def digest(stated: str) -> int:
    """What represents a collective's description in a message."""
    return int.from_bytes(hashlib.blake2b(stated.encode(), digest_size=8).digest(), "little", signed=True)


@functools.lru_cache(maxsize=256)
def signature_within(operation: str, kind: torch.dtype, shape: torch.Size) -> tuple[str, int]:
    """Description and digest of a collective whose tensor travels in the message itself."""
    stated = f"{operation} of {_described(kind, shape)}"
    return stated, digest(f"{stated} in this message")


class Rooms:
    """How much room the next message has: what was gathered the last time that the same came before it.

    All ranks have agreed on each collective before, with its shapes, so all find the same here. Where something else
    comes than the last time, a large tensor takes a collective of its own, as the first time.

    Args:
        ranks: how many there are.
        with_room: whether tensors travel in messages at all.
    """

    def __init__(self, ranks: int, with_room: bool) -> None:
        self._unknown = min(_ROOM, _ROOM_OF_ALL // ranks) if with_room else 0
        self._most = _MOST_OF_ALL // ranks if with_room else 0
        self._before = ""
        # Bytes gathered, by what came before.
        self._after: dict[str, int] = {}
        self._message = functools.lru_cache(maxsize=8)(functools.partial(Message, ranks))

    def expected(self) -> Message:
        """The message of the next collective."""
        expected = self._after.get(self._before, self._unknown)
        least = min(self._unknown, _LEAST)
        return self._message(max(least, expected if expected <= self._most else 0) // 16 * 16)

    def after(self, stated: str, gathered: int) -> Message:
        """All ranks agreed on a collective: the message of the next one.

        Args:
            stated: its description.
            gathered: bytes of the tensor that each rank gathers in it; 0: nothing.
        """
        if len(self._after) > 1024:
            self._after.clear()
        self._after[self._before], self._before = -(-gathered // 16) * 16, stated
        return self.expected()


class Message:
    """One that all ranks send at once, all of the same size: of another, no rank could read it.

    Args:
        ranks: how many there are.
        room: bytes for a tensor, a multiple of 16, as which elements of any type fit.
    """

    def __init__(self, ranks: int, room: int) -> None:
        self.ranks = ranks
        self._room = room
        self.mine = torch.zeros(_HEAD + self._room // 8, dtype=torch.int64)
        self.all = self.mine.repeat(ranks)
        by_rank = self._by_rank = self.all.view(ranks, -1)
        # What every message needs, made once: views take longer than what is written to them.
        self._head = self.mine[:_HEAD].numpy()
        self._heads, self._expected = by_rank[:, :_HEAD], self.mine[:_HEAD].expand(ranks, _HEAD)
        self._rooms = functools.lru_cache(maxsize=32)(self._room_of)

    def begin(self, count: int, digest: int) -> None:
        """Write the head of this rank's message."""
        self._head[0] = count
        self._head[1] = digest

    def agrees(self) -> bool:
        """Whether every rank's head is this one's."""
        return torch.equal(self._heads, self._expected)

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor can travel in the message: it is small, and its bytes are in the host's memory."""
        return (
            tensor.device.type == "cpu"
            and tensor.layout == torch.strided
            and 0 < tensor.nbytes <= self._room
            and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
        )

    def put(self, tensor: torch.Tensor) -> None:
        """Write a tensor into this rank's message."""
        self._rooms(tensor.dtype, tensor.numel())[0].copy_(tensor.reshape(-1))

    def parts(self, like: torch.Tensor) -> torch.Tensor:
        """Every rank's tensor of the type and shape of `like`, in a first dimension of all ranks."""
        parts = self._rooms(like.dtype, like.numel())[1]
        return parts.clone(memory_format=torch.contiguous_format).view(self.ranks, *like.shape)

    def _room_of(self, kind: torch.dtype, numel: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Where a tensor of a type and length stands in this rank's message, and where those of all do."""
        mine, of_all = self.mine[_HEAD:].view(kind), self._by_rank[:, _HEAD:].view(kind)
        return mine[:numel], of_all[:, :numel]
