"""A list that holds its objects weakly, in the order in which they came."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class WeakList(Generic[T]):
    """What a script no longer uses leaves it: an optimizer made anew in every epoch does not keep those before."""

    def __init__(self) -> None:
        self._held: list[weakref.ref[T]] = []

    def append(self, item: T) -> None:
        """Put an object at the end."""
        self._held = [*(r for r in self._held if r() is not None), weakref.ref(item)]

    def __iter__(self) -> Iterator[T]:
        return iter([item for r in self._held if (item := r()) is not None])

    def settled(self) -> list[T]:
        """The objects that are in use, the same on every rank: what only waits to be collected is gone first."""
        gc.collect()
        return list(self)

    def clear(self) -> None:
        """Let all go."""
        self._held.clear()
