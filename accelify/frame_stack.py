"""Room on the interpreter's stack of frames, so that code that goes in and out of deep calls makes it only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

_Result = TypeVar("_Result")
# A frame of one slot more than half of 2 MiB: the chunk that is made for it has room for the others in its other half.
_SLOTS = 2**20 // 8 + 1


def _call(work: Callable[[], object]) -> object:
    return work()


_call.__code__ = _call.__code__.replace(co_stacksize=_SLOTS)


def with_room(work: Callable[[], _Result]) -> _Result:
    """What some work gives, done with room for 1 MiB of Python frames.

    CPython keeps frames in chunks of 16 KiB, which it takes from the system and gives back as calls go over a chunk's
    end and return. A loop of calls at such a depth does so with each of them, which made more than half of the page
    faults of the engine. A frame that says that it needs more is put in a larger chunk; what of it is not used takes no
    memory.
    """
    return cast(_Result, _call(work))
