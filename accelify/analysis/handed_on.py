"""The loaders whose batches are handed on by what a loop goes through: a generator, an enumerate, a list of batches."""

from __future__ import annotations

from collections.abc import Callable

from accelify.analysis import values as v
from accelify.analysis.values import Mapping, Sequence, Thing, Values


def loaders_in(held: Values, holds_results: Callable[[Sequence], bool]) -> set[Thing]:
    """The loaders among some values, and those whose batches they hand on.

    Args:
        held: what an expression can be.
        holds_results: whether a list holds what an evaluation found, whose rows are no batches.
    """
    found: set[Thing] = set()
    queue, seen = list(held), set(held)
    while queue:
        value = queue.pop()
        inner: Values = set()
        if isinstance(value, Sequence) and not isinstance(value, Mapping):
            if holds_results(value):
                continue
            # A generator, an enumerate or a zip that hands on the batches of loaders.
            handed = set(value.rest)
            for pair in value.rest:
                if isinstance(pair, Sequence):
                    handed |= pair.any()
            for batch in handed:
                if isinstance(batch, Thing) and batch.kind == v.BATCH:
                    inner |= batch.links.get("loader", set())
        elif isinstance(value, Thing) and value.kind == v.LOADER:
            found.add(value)
        elif isinstance(value, Thing) and (
            value.kind == v.ITERATOR or (value.kind == v.UNKNOWN and "[]for" in value.uses)
        ):
            inner = value.links.get("iterated", set())
        queue += inner - seen
        seen |= inner
    return found
