"""Obligations that are not met for one cause, together."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.obligations.obligation import Obligation


def by_cause(obligations: Sequence[Obligation]) -> list[list[Obligation]]:
    """Those with one cause together: the same demand is not met, for what one operation gave."""
    groups: dict[tuple[object, ...], list[Obligation]] = {}
    for one in obligations:
        chain = one.reason.chain() if one.reason is not None else []
        cause = (chain[-1].path, chain[-1].line, chain[-1].text) if chain else (one.sink,)
        groups.setdefault((one.demand, *cause), []).append(one)
    return list(groups.values())
