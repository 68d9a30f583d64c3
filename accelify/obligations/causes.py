"""Obligations that are not met for one cause, together."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.obligations.obligation import Obligation


def by_cause(obligations: Sequence[Obligation], *, apart: bool = False) -> list[list[Obligation]]:
    """Those with one cause together: the same demand is not met, for what one operation gave.

    Args:
        obligations: in the order in which they are said.
        apart: those of which something else was found are none.
    """
    groups: dict[tuple[object, ...], list[Obligation]] = {}
    for one in obligations:
        chain = one.reason.chain() if one.reason is not None else []
        # `next(batches)`, and again where it begins anew.
        line = chain[-1].line if chain and one.sink != "draw" else 0
        cause = (chain[-1].path, line, chain[-1].text) if chain else (one.sink,)
        groups.setdefault((one.demand, one.found if apart else "", *cause), []).append(one)
    return list(groups.values())
