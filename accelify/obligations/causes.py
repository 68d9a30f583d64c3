"""Obligations that are not met for one cause, together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from accelify.obligations.obligation import Obligation

_CALLED = re.compile("`([^`]*)`")


def by_cause(obligations: Sequence[Obligation], *, apart: bool = False) -> list[list[Obligation]]:
    """Those of one file with one cause together: the same is found, of what one operation gave.

    Args:
        obligations: in the order in which they are reported.
        apart: each of which no cause is known is a cause by itself, so that a comment can silence it alone.
    """
    groups: dict[tuple[object, ...], list[Obligation]] = {}
    for one in obligations:
        cause = cause_of(one)
        place = (one.line, one.column) if apart and not cause else ()
        # Who does not come to a backward does not come to the step after it; what is on the first GPU is for one cause.
        # Of one model that is in a wrapper, each attribute is to be asked elsewhere.
        found = "" if cause and one.demand in ("all ranks", "device", "wrapper") else one.found
        groups.setdefault((one.demand, one.path, found, *cause, *place), []).append(one)
    return list(groups.values())


def cause_of(one: Obligation) -> tuple[object, ...]:
    """The operation that an obligation is not met for, by its place and words; nothing where it is not known."""
    steps = one.reason.nearest() if one.reason is not None else []
    # `next(batches)`, and again where it begins anew.
    line = steps[-1].line if steps and one.sink != "draw" else 0
    return (steps[-1].path, line, steps[-1].text) if steps else ()


def called(one: Obligation) -> str:
    """What is called where a demand is not met, as far as it is said."""
    name = _CALLED.match(one.found)
    return name[1] if name is not None else ""
