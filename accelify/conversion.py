"""What became of scripts: the conversion of one, and those of several that share modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from accelify.dropped_moves import DroppedMove, MovePlace
from accelify.findings import Finding, Safety, Severity
from accelify.merged_edits import merged
from accelify.rule_codes import published, published_all
from accelify.source import Source

CONVERTED, UNCHANGED, REFUSED, FAILED = "converted", "unchanged", "refused", "failed"


class ConvertOptions(NamedTuple):
    """What the user chose.

    `batch_size`: `per-process` (each process takes the script's batch size) or `total` (the script's batch is split
    over the processes). `runtime`: what the converted script imports, `accelify` or `accelerate` (Hugging Face's).
    `replace_ddp`: also convert scripts that distribute themselves by torch's DistributedDataParallel.
    """

    batch_size: str = "per-process"
    runtime: str = "accelify"
    replace_ddp: bool = False
    # Moves to a device that stay where prepare would place what they move.
    retained: frozenset[MovePlace] = frozenset()


@dataclass
class Conversion:
    """What became of one script.

    `status` is converted, unchanged, refused or failed; `reason` is one sentence for the last three. `applied` are the
    findings that an edit fixed, `remaining` all others: `left`, which a person has to look at, and `infos`, which need
    no change.
    """

    source: Source
    status: str
    reason: str = ""
    applied: list[Finding] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    new_text: str = ""
    # Its functions that the script reaches, by name: whether they take the Accelerator.
    functions: dict[str, bool] = field(default_factory=dict)
    # For reports: each finding that an edit fixed, with the lines at which its edits begin.
    edited: Callable[[], list[tuple[Finding, int]]] = list
    # Other modules that read on the host what is on the device now, with a copy put in.
    helpers: list[Conversion] = field(default_factory=list)
    # Sentences about the script as a whole that are no findings.
    notes: list[str] = field(default_factory=list)
    # Findings that hold only as long as these scripts are not converted with it.
    until: list[tuple[Finding, frozenset[Path]]] = field(default_factory=list)
    # Its moves that are gone, as prepare places what they moved.
    dropped: list[DroppedMove] = field(default_factory=list)
    # The text that they stood in, where that is not the script's.
    lowered: str = ""
    # Of a script: converts it again, and what is converted with it, with some moves retained.
    again: Callable[[frozenset[MovePlace]], list[Conversion]] | None = None

    def published(self) -> Conversion:
        """The same, with findings of rules in place of those of parts."""
        return replace(
            self,
            applied=[*map(published, self.applied)],
            remaining=published_all(self.remaining),
            edited=lambda: [(published(finding), line) for finding, line in self.edited()],
        )

    @property
    def left(self) -> list[Finding]:
        """What is left for a person."""
        return [finding for finding in self.remaining if finding.severity is not Severity.INFO]

    @property
    def infos(self) -> list[Finding]:
        """What is good to know and needs no change."""
        return [finding for finding in self.remaining if finding.severity is Severity.INFO]

    @property
    def place(self) -> Path | None:
        """Where its file is, None for stdin."""
        return self.source.path.resolve() if self.source.path is not None else None

    @property
    def changed(self) -> bool:
        """Whether the new text differs from the old one."""
        return self.new_text != self.source.text


class GatheredConversions:
    """The conversions of several scripts, each file once. Entry scripts are added before the modules they import."""

    def __init__(self) -> None:
        self._found: dict[Path | None, Conversion] = {}
        self._entry: dict[Path | None, Path | None] = {}

    @property
    def conversions(self) -> list[Conversion]:
        """One for each file, in the order in which they came."""
        changed = {place for place, conversion in self._found.items() if conversion.changed}
        for conversion in self._found.values():
            past = {finding for finding, paths in conversion.until if paths <= changed}
            conversion.remaining = [f for f in conversion.remaining if f not in past]
        return list(self._found.values())

    def left_as_they_are(self, scripts: set[Path]) -> set[Path]:
        """Of some scripts, those that stay as they are and call what others have changed."""
        changed = {place for place, conversion in self._found.items() if conversion.changed}
        called = [paths for c in self._found.values() if c.changed for _, paths in c.until]
        return {path for path in scripts if path not in changed and any(path in paths for paths in called)}

    def has(self, path: Path) -> bool:
        """Whether a file was converted already, as a part of the group of an entry script."""
        return path.resolve() in self._entry

    def add(self, group: list[Conversion]) -> None:
        """Take in what `convert_project` gave: edits of a shared file are put together where they agree."""
        group = self._without_conflict(group)
        for conversion in group:
            place = conversion.place
            known = self._found.get(place)
            if known is None or (conversion.changed and not known.changed):
                self._found[place] = conversion
            if len(group) > 1:
                self._entry.setdefault(place, group[0].source.path)

    def _without_conflict(self, group: list[Conversion]) -> list[Conversion]:
        together = []
        for conversion in group[1:]:
            known = self._found.get(conversion.place)
            if known is None or not known.changed or known.new_text == conversion.new_text:
                continue
            both = _together(known, conversion)
            if both is None:
                first = self._entry.get(conversion.place)
                reason = (
                    f"{conversion.source.path} is converted for {first} already and needs other edits for this "
                    "script: convert this one by hand, after the model of that one"
                )
                return [left_alone(group[0].source, REFUSED, reason)]
            together.append(both)
        for both in together:
            self._found[both.place] = both
        return [*group[:1], *[c for c in group[1:] if c.place not in {both.place for both in together}]]


def _together(one: Conversion, other: Conversion) -> Conversion | None:
    """A module's edits for two scripts in one; None where they collide or differ in who takes the Accelerator."""
    if any(other.functions.get(name, takes) != takes for name, takes in one.functions.items()):
        return None
    text = merged(one.source.text, one.new_text, other.new_text)
    if text is None:
        return None
    from accelify.analysis.syntax import Tree
    from accelify.writer.checks import check
    from accelify.writer.errors import EditError

    try:
        tree = Tree(one.source.text, str(one.source.path), one.source.tree)
        check(tree, [tree.text], [text], [str(one.source.path)])
    except (EditError, SyntaxError, ValueError):
        return None
    return replace(
        one,
        new_text=text,
        applied=sorted({*one.applied, *other.applied}),
        remaining=sorted({*one.remaining, *other.remaining}),
        functions={**one.functions, **other.functions},
    )


def left_alone(source: Source, status: str, reason: str) -> Conversion:
    """A script as it was, with the reason in one sentence."""
    return Conversion(source, status, reason, new_text=source.text)


def why_not(path: str, line: int, column: int, code: str, why: str, effort: int = 30) -> Finding:
    """The finding with the reason why a script is left alone; `effort` in minutes."""
    return Finding(
        path, line, column, code, "left-alone", f"left alone: {why}",
        severity=Severity.ERROR, safety=Safety.MANUAL, effort=effort, fixable=False,
    )  # fmt: skip
