"""What was prepared, in the order in which it came, until something else takes its place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class WeakList(Generic[T]):
    """Holds its objects until they are released; after that only as long as the script does."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[T]] = []
        self._stored: list[T] = []

    def append(self, item: T) -> None:
        """Put an object at the end."""
        self._known = [*(r for r in self._known if r() is not None), weakref.ref(item)]
        self._stored.append(item)

    def release(self, condition: Callable[[T], bool]) -> None:
        """Leave objects that meet a condition to the script."""
        self._stored = [item for item in self._stored if not condition(item)]

    def __iter__(self) -> Iterator[T]:
        return iter([item for r in self._known if (item := r()) is not None])

    def settled(self) -> list[T]:
        """The objects that are in use, the same on every rank: what only waits to be collected is gone first."""
        gc.collect()
        return list(self)

    def clear(self) -> None:
        """Let all go."""
        self._known.clear()
        self._stored.clear()
