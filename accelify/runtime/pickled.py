"""What a file contains where a script writes objects of the runtime as parts of its objects: nothing of this run."""

from __future__ import annotations

import copy
import weakref
from typing import Any

_made: weakref.ref[Any] | None = None


def of_this_process() -> Any:
    """The Accelerator that was made last in this process; until one is made, what asks for it when it is used."""
    found = _made() if _made is not None else None
    return _Awaited() if found is None else found


class _Awaited:
    """Stands for the Accelerator in an object that is read from a file before there is one, or where none is needed."""

    def __getattr__(self, name: str) -> Any:
        found = of_this_process()
        if name.startswith("__") or isinstance(found, _Awaited):
            raise AttributeError(
                f"`{name}` of the Accelerator is asked for by an object that was read from a file, and this process "
                "has made none: write `accelerator = Accelerator()` before"
            )
        return getattr(found, name)

    def __reduce__(self) -> Any:
        return of_this_process, ()


class OfThisProcess:
    """An object of which each process has one: an object that refers to it finds its process's in a file or a copy."""

    def _be_the_one(self) -> None:
        global _made
        _made = weakref.ref(self)

    def __reduce__(self) -> Any:
        return of_this_process, ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class WrittenAsOriginal:
    """A wrapper in whose place a file has the script's object: it loads without this package, and in another run."""

    original: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        del protocol  # `__reduce_ex__(2)` insists on the class of the object
        return self.original.__reduce_ex__(1)

    # A copy in memory goes on to be what it was, which copying by __reduce_ex__ would not give.

    def __copy__(self) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made
