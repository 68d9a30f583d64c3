"""`dataclasses.replace` for values and placements, of which thousands are made: several times as quick."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, cast

T = TypeVar("T")
# How all fields of an object are read at once, by class; None where they cannot be set.
_fields: dict[type, Callable[[Any], tuple[Any, ...]] | None] = {}


def replace(one: T, **changes: Any) -> T:
    """An object like another one but for these fields.

    Args:
        one: an object of a dataclass with slots.
        changes: the fields that are others.
    """
    cls = type(one)
    if cls not in _fields:
        frozen = getattr(cls, "__dataclass_params__").frozen  # noqa: B009
        _fields[cls] = None if frozen else attrgetter(*getattr(cls, "__slots__"))  # noqa: B009
    fields = _fields[cls]
    if fields is None:
        return cast(T, dataclasses.replace(cast(Any, one), **changes))
    made = cls(*fields(one))
    for name, value in changes.items():
        setattr(made, name, value)
    return made
