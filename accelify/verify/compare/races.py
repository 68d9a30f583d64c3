"""Accesses of two ranks to one path whose order nothing guarantees, and which the script can distinguish."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from accelify.verify.compare.order import HappensBefore
from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.events import RankRecord
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

_GONE = ("remove", "rmdir", "rmtree", "moved")
_CONTENT = ("write", "append", "truncate")
_DOES = {
    "write": "writes", "append": "appends to", "truncate": "cuts", "mkdir": "makes", "rmdir": "removes",
    "remove": "removes", "rmtree": "removes", "moved": "moves", "rename": "puts in place", "link": "links",
    "read": "reads", "ask": "asks about", "list": "lists", "open": "opens",
}  # fmt: skip
_MAY = {
    "write": "writing", "append": "appending to", "truncate": "cutting", "mkdir": "making", "rmdir": "removing",
    "remove": "removing", "rmtree": "removing", "moved": "moving", "rename": "putting in place", "link": "linking",
}  # fmt: skip
REPORTED = 20
"""Races that are written out; what comes after has the same reasons."""


@dataclass
class Access:
    """An access of a rank to a path: from event `n` to event `end` of that rank."""

    rank: int
    kind: str
    path: str
    site: Site | None
    n: int
    end: int
    new: bool = False
    exist_ok: bool = False
    harmless: bool = False
    folders: set[str] = field(default_factory=set)

    @property
    def changes(self) -> bool:
        """Whether it may change what another rank sees."""
        return self.kind in _MAY and not (self.kind == "mkdir" and not self.new)

    @property
    def appears(self) -> bool:
        """Whether the path is there after it and was not before, or the other way round."""
        return self.kind in _GONE or (self.changes and self.new)


def accesses(rank: int, record: RankRecord) -> list[Access]:
    """All accesses of a rank, in order."""
    found: list[Access] = []
    by_number: dict[int, Access] = {}
    folders: set[str] = set()
    first_pid = next((event["pid"] for event in record.events.get("process", [])), None)
    for event in record.events.get("effect", []):
        kind, path = event["kind"], event["path"]
        if kind not in _DOES and kind != "rename":
            continue
        site = None if event["site"] is None else (event["site"][0], event["site"][1])
        access = Access(
            rank, kind, path, site, event["n"], event["n"], event.get("new", False),
            event.get("exist_ok", False), event.get("harmless", False),
        )  # fmt: skip
        if kind == "mkdir":
            folders = folders | {path, *(_above(path) if event.get("parents") else ())}
        access.folders = folders
        found.append(access)
        if "id" in event and event["pid"] == first_pid:
            by_number[event["id"]] = access
        if kind == "rename":
            found.append(
                Access(rank, "moved", event["source"], site, event["n"], event["n"], folders=folders)
            )
    for event in record.events.get("effect_end", []):
        if event["id"] in by_number:
            by_number[event["id"]].end = event["n"]
    return found


def race_checks(
    run: Run, found: list[list[Access]], lines: LineMap, reported: set[str], shown: Callable[[str], str]
) -> list[Check]:
    """A check for each pair of lines that race.

    Args:
        run: of several processes.
        found: the accesses of each of its ranks.
        lines: of the converted script and the original.
        reported: paths of which it is known that too many ranks change them.
        shown: how a path is written in a sentence.
    """
    if len(found) < 2:
        return []
    order: HappensBefore | None = None
    checks: dict[str, Check] = {}
    places = [_by_place(part) for part in found]
    for rank, part in enumerate(found):
        for change in part:
            if not change.changes:
                continue
            for other, accessed in product(range(len(found)), _relatives(change.path, change.kind)):
                if other == rank:
                    continue
                for access in places[other].get(accessed, ()):
                    if not _matters(change, access) or (change.path in reported and access.changes):
                        continue
                    order = order or HappensBefore(run.ranks)
                    if _ordered(order, change, access):
                        continue
                    check = _check(change, access, lines, shown)
                    checks.setdefault(check.key, check)
                    if len(checks) >= REPORTED:
                        return list(checks.values())
    return list(checks.values())


def _by_place(part: list[Access]) -> dict[tuple[str, bool], list[Access]]:
    """Accesses by their path, and by every folder above it (True)."""
    found: dict[tuple[str, bool], list[Access]] = {}
    for access in part:
        found.setdefault((access.path, False), []).append(access)
        for folder in _above(access.path):
            found.setdefault((folder, True), []).append(access)
    return found


def _above(path: str) -> list[str]:
    """The folders that a path is in."""
    found = []
    while (path := os.path.dirname(path)) not in ("", "/"):
        found.append(path)
    return found


def _relatives(path: str, kind: str) -> list[tuple[str, bool]]:
    """Where an access can meet a change at `path`: there, in the folder that lists it, and below a folder."""
    places = [(path, False), (os.path.dirname(path), False)]
    if kind in ("mkdir", "rmtree", "rmdir", "moved", "rename", "link"):
        places.append((path, True))
    return places


def _matters(change: Access, access: Access) -> bool:
    """Whether the script can see in which order the two came."""
    if access.path == os.path.dirname(change.path) != change.path:
        # Who lists a folder sees what appears in it; nobody else looks at its entries. Removing the folder meets them
        # from the other side.
        return access.kind == "list" and change.appears
    if access.path != change.path:
        return _matters_below(change, access)
    if access.kind == "ask":
        return change.appears and not (access.harmless and (access.rank != 0 or change.kind == "mkdir"))
    if access.kind == "mkdir":
        if change.kind == "mkdir":
            return access.new and not (access.exist_ok and change.exist_ok)
        return change.kind in _GONE
    if access.kind == "list":
        return change.kind == "mkdir" or change.kind in _GONE
    if access.kind == "open":
        # Opened for appending, and nothing appended: only a file that is taken away matters.
        return change.kind in _GONE
    return access.kind in (*_GONE, *_CONTENT, "read", "rename", "link")


def _matters_below(change: Access, access: Access) -> bool:
    """A change of a folder, and an access to what is in it."""
    if change.kind == "mkdir":
        # Without its folder it fails, unless the rank has seen to the folder itself.
        return access.kind not in ("ask", "remove", "moved") and change.path not in access.folders
    return access.kind != "ask" or change.kind in _GONE


def _ordered(order: HappensBefore, change: Access, access: Access) -> bool:
    return order.before((change.rank, change.end), (access.rank, access.n)) or order.before(
        (access.rank, access.end), (change.rank, change.n)
    )


def _check(change: Access, access: Access, lines: LineMap, shown: Callable[[str], str]) -> Check:
    asks = f"asks whether {shown(access.path)} exists" if access.kind == "ask" else ""
    does = asks or f"{_DOES[access.kind]} {shown(access.path)}"
    it = "it" if access.path == change.path else shown(change.path)
    sentence = (
        f"rank {access.rank} {does}{_line(access, lines)} while rank {change.rank} may be {_MAY[change.kind]} {it}"
        f"{_line(change, lines)}: nothing orders the two"
    )
    site = access.site or change.site
    original = lines.original(site)
    first, second = (_place(lines, part.site) for part in (access, change))
    key = f"race {access.kind} {first} {change.kind} {second}"
    return Check("effects", key, Verdict.DIFFERENT, sentence, site, original)


def _line(access: Access, lines: LineMap) -> str:
    return f" ({lines.within(access.site)})" if access.site else ""


def _place(lines: LineMap, site: Site | None) -> str:
    found = lines.original(site) or site
    return f"{found[0]}:{found[1]}" if found else "-"
