"""By which numbers a range goes: whether the main process goes through other rounds than the rest."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.heap.values import PROCESSES, UNSET, Instance, Iterable, Value

# What goes by the number of processes, and what is not known.
_SHARED_OUT, _UNKNOWN = "the number of processes", "unknown"


def with_bounds(over: Iterable, args: Sequence[Value]) -> Iterable:
    """A range, with what is known of the numbers by which it goes.

    Args:
        over: what a loop goes over.
        args: the arguments of `range`.
    """
    over.bounds = tuple(map(_bound_of, args))
    return over


def _bound_of(value: Value) -> object:
    if value.const is not UNSET:
        return value.const
    by_processes = value.type == PROCESSES or bool(value.place.degree)
    return _SHARED_OUT if by_processes else _UNKNOWN


def goes_otherwise(one: Value, other: Value) -> bool:
    """Whether each of two ways goes through another number of rounds of a range, bare or in a bar; False where that is
    not known.

    Args:
        one: what the one way gives.
        other: what the other way gives.
    """
    ranges = [_ranges_in(value) for value in (one, other)]
    if not all(len(found) == 1 for found in ranges):
        return False
    first, second = (found[0].bounds for found in ranges)
    by_processes = {_SHARED_OUT in first, _SHARED_OUT in second}
    known = _UNKNOWN not in first + second and first[-1:] != second[-1:] and len(first) == len(second)
    return bool(first and second) and (len(by_processes) > 1 or known)


def _ranges_in(value: Value) -> list[Iterable]:
    """The ranges that a value is, or that a bar shows."""
    wrapped = [
        inner for ref in value.of(Instance) if (inner := ref.fields.get("#over")) is not None and inner.refs
    ]
    return [ref for each in (value, *wrapped) for ref in each.of(Iterable)]
