"""Scripts that nest deeply, as sums of hundreds of terms and long chains of `elif` do: a larger stack for them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from accelify.frame_stack import with_room

_Result = TypeVar("_Result")
# Python's parser does not read what is nested deeper than a few thousand times.
_DEEPEST = 60_000
_STACK = 512 * 2**20  # bytes: what of it is not used takes no memory
_large = threading.local()


def deeply(work: Callable[[], _Result]) -> _Result:
    """What some work gives; where it goes deeper than Python's usual stack it is done again on a larger one.

    Args:
        work: what to do; it may be begun twice.

    Raises:
        RecursionError: the larger stack is not enough either.
    """
    try:
        return with_room(work)
    except RecursionError:
        if getattr(_large, "here", False):
            raise
    results: list[_Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        _large.here = True
        try:
            results.append(with_room(work))
        except BaseException as error:  # which is raised where it was waited for
            failed.append(error)

    usual, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    sys.setrecursionlimit(max(usual, _DEEPEST))
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(usual)
        threading.stack_size(size)
    if failed:
        raise failed[0]
    return results[0]
