"""Files and folders that a run has left, compared with the original's: the names both ways, then the contents.

Names that carry a date, a time, a process id or what `tempfile` draws are matched by the rest of them, where neither
side has the other's name. Times inside files are left out where the format has a place for them, and where two runs
of the original do not repeat a file, nothing is compared in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from accelify.verify.compare.contents import Picture, UnreadableError, read
from accelify.verify.compare.documents import Comparison
from accelify.verify.compare.losses import GROWTH, LOSS_TOLERANCE, UPDATE_TOLERANCE, tolerances
from accelify.verify.compare.numbers import Match
from accelify.verify.compare.verdict import NOT_CHECKED, Check, Verdict
from accelify.verify.compare.wording import ratio_reason
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

LEVELS = 8
"""Levels of 255 by which rounding may change a pixel at the edge of a line that is drawn."""
UNREPEATED = "two runs of the original itself leave other contents here"
UNREAD = "a format that verify does not read, and its bytes differ"
_CHANGING = re.compile(
    r"""
    (?<=tfevents\.)\S*
  | (?:19[7-9]|20[0-3])\d(?P<between>[-_.]?)(?:0[1-9]|1[0-2])(?P=between)(?:0[1-9]|[12]\d|3[01])   # a date,
        (?:[-_.T\ ]*\d\d[-_.:h]?\d\d(?:[-_.:m]?\d\d)?)? (?:[.,_]\d+)?                            # maybe with the time
  | (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[-_ ]?\d{1,2} (?:[-_ ]+\d\d[-_:]\d\d[-_:]\d\d)?
  | (?<!\d)\d\d[-_:]\d\d[-_:]\d\d(?!\d)                     # a time of day
  | (?<!\d)\d{9,}(?:\.\d+)?                                 # seconds, or parts of them, since 1970
  | (?<=tmp)[a-z0-9_]{8}\b
  | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
  | \b[0-9a-f]{32}\b
    """,
    re.VERBOSE,
)


class Change(Protocol):
    """One path that a run changed: as the script sees it, of which kind, and where its content can be read."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def content(self) -> Path | None: ...


def changes(run: Run) -> list[Change]:
    """What a run has left on disk."""
    return list(getattr(run, "changes", None) or ())


def compare(
    original: Run,
    other: Run,
    lines: LineMap,
    exact: bool,
    *,
    repeats: tuple[Run, Run] | None = None,
    control: Run | None = None,
    tolerance: float | None = None,
    excuse: Callable[[float, float], str] = lambda a, b: "",
) -> list[Check]:
    """Compare what `other` has left on disk with what the original has.

    Args:
        lines: not needed, a file is known by its path.
        exact: contents are the same to the bit, but for times that a format has a place for.
        repeats: two runs of one script, the original's. A file in which they differ is not compared.
        control: the original with gradients disturbed as by rounding. As far as arrays go apart there, rounding carries
            them; a file that differs in it otherwise is not compared.
        tolerance: relative difference that rounding explains at the end; from the precision and the steps when None.
        excuse: why a figure may differ from the original's, since inside a training loop the main process shows
            that of its share; empty where it may not. `figures.shares_shown` makes one.
    """
    if tolerance is None:
        tolerance = (tolerances(original) or [LOSS_TOLERANCE])[0] * (1 + GROWTH * len(original.losses))
    mine, theirs = ({change.path: change for change in changes(run)} for run in (original, other))
    unrepeated = _unrepeated(*repeats, exact, tolerance) if repeats else set()
    disturbed: dict[str, Change] = {}
    if control is not None:
        unrepeated |= _unrepeated(original, control, exact, tolerance, disturbed=True)
        disturbed = {_CHANGING.sub("#", change.path): change for change in changes(control)}
    checks = []
    for a, b in paired(mine, theirs):
        if a is None or b is None:
            verdict, sentence = _one_sided(a, b, other)
        else:
            third = disturbed.get(_CHANGING.sub("#", a.path))
            verdict, sentence = _contained(a, b, exact, tolerance, excuse, other.processes, third)
        path: str = (a or b).path
        if verdict is Verdict.DIFFERENT and _CHANGING.sub("#", path) in unrepeated:
            verdict, sentence = Verdict.NOT_COMPARABLE, UNREPEATED
        checks.append(Check("files", path, verdict, sentence))
    return checks


def paired(mine: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Pairs of paths that are the same one, None where one side has none."""
    pairs = [(change, theirs[path]) for path, change in mine.items() if path in theirs]
    left: dict[str, list[Any]] = {}
    right: dict[str, list[Any]] = {}
    for side, other, found in ((mine, theirs, left), (theirs, mine, right)):
        for path, change in side.items():
            if path not in other:
                found.setdefault(_CHANGING.sub("#", path), []).append(change)
    for name, unmatched in left.items():
        matching = right.pop(name, [])
        pairs += zip(unmatched, matching, strict=False)
        pairs += [(change, None) for change in unmatched[len(matching) :]]
        pairs += [(None, change) for change in matching[len(unmatched) :]]
    return pairs + [(None, change) for rest in right.values() for change in rest]


def _one_sided(a: Change | None, b: Change | None, other: Run) -> tuple[Verdict, str]:
    if a is not None:
        if other.failure:
            return Verdict.NOT_REACHED, "the run failed before it came here"
        return Verdict.DIFFERENT, f"the original {_does(a)}, this run does not"
    assert b is not None
    return Verdict.DIFFERENT, f"this run {_does(b)}, which the original does not"


def _does(change: Change) -> str:
    if change.kind == "removed":
        return f"removes {change.path}"
    return f"leaves {'the folder ' if change.kind == 'folder' else ''}{change.path}"


def _contained(
    a: Change,
    b: Change,
    exact: bool,
    tolerance: float,
    excuse: Callable[[float, float], str],
    processes: int,
    disturbed: Change | None = None,
) -> tuple[Verdict, str]:
    if a.kind != b.kind:
        return Verdict.DIFFERENT, f"this run {_does(b)}, the original {_does(a)}"
    if a.kind == "link":
        return _links(a, b)
    if a.kind != "file" or a.content is None or b.content is None or _same_bytes(a.content, b.content):
        return Verdict.EQUAL, ""
    try:
        x, y = read(a.content, a.path), read(b.content, b.path)
    except UnreadableError:
        return Verdict.NOT_COMPARABLE, UNREAD
    if isinstance(x, Picture) or isinstance(y, Picture):
        return _pictures(x, y, exact)
    comparison = Comparison(tolerance, exact, excuse, 0.0 if exact else UPDATE_TOLERANCE, processes > 1)
    comparison.hold(x, y, disturbed=_content(disturbed))
    comparison.finish()
    if comparison.match is Match.DIFFERENT:
        pair = comparison.pair
        return Verdict.DIFFERENT, comparison.first + (
            ratio_reason(pair[1], pair[0], processes) if pair else ""
        )
    if comparison.excused:
        return Verdict.NOT_COMPARABLE, max(comparison.excused, key=NOT_CHECKED.__eq__)
    return (Verdict.EQUAL if comparison.match is Match.SAME else Verdict.ROUNDING), ""


def _content(change: Change | None) -> Any:
    """What a file holds; None where that is not read."""
    if change is None or change.kind != "file" or change.content is None:
        return None
    try:
        return read(change.content, change.path)
    except UnreadableError:
        return None


def _unrepeated(first: Run, second: Run, exact: bool, tolerance: float, disturbed: bool = False) -> set[str]:
    """Names, without what changes in them, of what two runs of one script do not leave alike; where the second is
    `disturbed`, arrays may be as far apart as rounding is taken to carry them."""
    mine, theirs = ({change.path: change for change in changes(run)} for run in (first, second))
    found = set()
    for a, b in paired(mine, theirs):
        verdict = Verdict.DIFFERENT
        if a is not None and b is not None:
            third = b if disturbed else None
            verdict = _contained(a, b, exact, tolerance, lambda x, y: "", 1, third)[0]
        if verdict not in (Verdict.EQUAL, Verdict.ROUNDING):
            found.add(_CHANGING.sub("#", (a or b).path))
    return found


def _links(a: Change, b: Change) -> tuple[Verdict, str]:
    if a.content is None or b.content is None:
        return Verdict.EQUAL, ""
    try:
        targets = [str(change.content.readlink()) for change in (a, b) if change.content is not None]
    except OSError:
        return Verdict.EQUAL, ""
    if len({_CHANGING.sub("#", target) for target in targets}) == 1:
        return Verdict.EQUAL, ""
    return Verdict.DIFFERENT, f"a link to {targets[1]} where the original's goes to {targets[0]}"


def _same_bytes(a: Path, b: Path) -> bool:
    try:
        if a.stat().st_size != b.stat().st_size:
            return False
        with a.open("rb") as first, b.open("rb") as second:
            while True:
                x, y = first.read(1 << 20), second.read(1 << 20)
                if x != y:
                    return False
                if not x:
                    return True
    except OSError:
        return False


def _pictures(a: Any, b: Any, exact: bool) -> tuple[Verdict, str]:
    if not (isinstance(a, Picture) and isinstance(b, Picture)):
        return Verdict.DIFFERENT, "a picture in one run only"
    if a.size != b.size or a.mode != b.mode:
        sizes = [f"{picture.size[0]} x {picture.size[1]} pixels ({picture.mode})" for picture in (b, a)]
        return Verdict.DIFFERENT, f"a picture of {sizes[0]} where the original's has {sizes[1]}"
    if a.data == b.data:
        return Verdict.EQUAL, ""
    apart = [abs(x - y) for x, y in zip(a.data, b.data, strict=False)]
    if max(apart) <= LEVELS and not exact:
        return Verdict.ROUNDING, ""
    channels = max(len(a.data) // max(a.size[0] * a.size[1], 1), 1)
    count = len({position // channels for position in _beyond(apart, 0 if exact else LEVELS)})
    return Verdict.DIFFERENT, f"{count} of {a.size[0] * a.size[1]} pixels of the picture differ"


def _beyond(apart: Iterable[int], limit: int) -> list[int]:
    return [position for position, levels in enumerate(apart) if levels > limit]
