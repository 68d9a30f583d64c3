"""Objects that are alive: no more models, optimizers and loaders than in the original, at each point."""

from __future__ import annotations

from typing import Any

from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

GROWN = 1.1
"""From this ratio on, more bytes in parameters count."""
_KINDS = ("models", "optimizers", "loaders")


def compare(original: Run, other: Run, lines: LineMap, exact: bool) -> list[Check]:
    """One check for each kind of object, and one for the peak of bytes in parameters."""
    before = original.ranks[0].events.get("objects", [])
    after = [record.events.get("objects", []) for record in other.ranks]
    if not before or not all(after):
        return []
    return [
        *(_counted(kind, before, rank, lines) for kind in _KINDS for rank in [_worst(kind, before, after)]),
        _peak(before, after, lines),
    ]


def _pairs(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The same points of both: each creation of an optimizer but the first, and the end.

    What the last loop used is let go of with the process at the latest, so that at the end as many may be alive as the
    original ever had at once.
    """
    made = [[point for point in points if point["at"] == "optimizer"] for points in (before, after)]
    ends = [[point for point in points if point["at"] == "end"][-1:] for points in (before, after)]
    most = {kind: max(point[kind] for point in before) for kind in _KINDS}
    return [
        *zip(made[0], made[1], strict=False),
        *(({**old, **most}, new) for old, new in zip(ends[0], ends[1], strict=False)),
    ]


def _worst(
    kind: str, before: list[dict[str, Any]], after: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    return max(
        after, key=lambda rank: max((new[kind] - old[kind] for old, new in _pairs(before, rank)), default=0)
    )


def _counted(kind: str, before: list[dict[str, Any]], after: list[dict[str, Any]], lines: LineMap) -> Check:
    more = [(old, new) for old, new in _pairs(before, after) if new[kind] > old[kind]]
    if not more:
        return Check("objects", kind, Verdict.EQUAL)
    old, new = max(more, key=lambda pair: pair[1][kind] - pair[0][kind])
    count, noun = new[kind], kind if new[kind] != 1 else kind[:-1]
    verb = "is" if count == 1 else "are"
    site = _site(new) or _site(more[0][1])
    when = (
        f"when {lines.within(site)} makes another optimizer"
        if new["at"] == "optimizer" and site
        else "at the end"
    )
    sentence = f"{count} {noun} {verb} alive in place of {old[kind]} {when}"
    return Check("objects", kind, Verdict.DIFFERENT, sentence, site, lines.original(site))


def _peak(before: list[dict[str, Any]], after: list[list[dict[str, Any]]], lines: LineMap) -> Check:
    wanted = max(point["bytes"] for point in before)
    worst = max((point for rank in after for point in rank), key=lambda point: point["bytes"])
    if worst["bytes"] <= GROWN * wanted:
        return Check("objects", "memory", Verdict.EQUAL)
    ratio = f"{worst['bytes'] / wanted:.1f} times" if wanted else f"{worst['bytes']} bytes more than"
    sentence = f"parameters take up to {ratio} the original's memory"
    site = _site(worst)
    return Check("objects", "memory", Verdict.DIFFERENT, sentence, site, lines.original(site))


def _site(point: dict[str, Any]) -> Site | None:
    site = point["site"]
    return None if site is None else (str(site[0]), int(site[1]))
