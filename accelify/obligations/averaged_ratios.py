"""Ratios of sums that each process makes of its own, where the processes average them: means by class, precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.domains.placement import CARRIED, Kind
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of
from accelify.heap.run import Event, why_of
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import made

_MOST_STEPS = 100
_OTHER_OPERATIONS = frozenset({"MAX", "MIN", "PRODUCT"})


def averaged(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A reduction of a ratio.

    Args:
        event: the reduction.
        events: all of the script.
    """
    names = {getattr(ref, "name", "").rpartition(".")[2] for value in event.shown[1:] for ref in value.refs}
    if not (event.name.endswith("reduce") or _is_averaged(event)) or names & _OTHER_OPERATIONS:
        return
    ratios = {(one.module.path, one.line, f"`{one.name}`") for one in events if one.kind == "ratio"}
    for value in event.shown[:1]:
        place = array_of(value)
        apart = place.kind is Kind.OWN or (place.kind is Kind.ROUND and place.needs == CARRIED)
        why = why_of(value) if apart else None
        found = _ratio(why, ratios) if why is not None else None
        if found is not None:
            text = (
                "ratios that each process makes of its own sums are put together, which does not give the ratio of "
                "all; put both sums together first, and divide then"
            )
            yield made(event, "gathered", Status.NAMED, text, found)


def _is_averaged(event: Event) -> bool:
    """Whether the script takes the mean of what a gather gives, right there."""
    tree = event.module.tree
    return tree is not None and any(
        isinstance(one, ast.Attribute) and one.value is event.node and one.attr == "mean"
        for one in ast.walk(tree)
    )


def _ratio(why: Reason, ratios: set[tuple[str, int, str]]) -> Reason | None:
    """The ratio that a value is made of."""
    waiting, seen = [why], set[int]()
    while waiting and len(seen) < _MOST_STEPS:
        step = waiting.pop()
        if (step.path, step.line, step.text) in ratios:
            return step
        waiting += [one for one in step.parents if id(one) not in seen]
        seen |= {id(one) for one in step.parents}
    return None
