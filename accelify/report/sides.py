"""Two versions of a script side by side: which line became which, and which findings explain the change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelify.common_lines import paired, same_lines
from accelify.findings import Finding
from accelify.source import split_lines

if TYPE_CHECKING:
    from accelify.conversion import Conversion


@dataclass(frozen=True)
class Line:
    """One line of one version: its number (from 1), its text without the line end, and the span that changed."""

    number: int
    text: str
    changed: tuple[int, int] | None = None


@dataclass(frozen=True)
class Row:
    """An old line beside a new one; either may be missing."""

    old: Line | None
    new: Line | None

    @property
    def same(self) -> bool:
        """Whether nothing changed in this row."""
        return self.old is not None and self.new is not None and self.old.text == self.new.text


@dataclass(frozen=True)
class Block:
    """Neighbouring rows that are all unchanged, or all changed; `findings` are those that explain the change."""

    rows: tuple[Row, ...]
    changed: bool
    findings: tuple[Finding, ...] = ()
    # The old lines around a block that only adds.
    place: tuple[int, ...] = ()


def side_by_side(conversion: Conversion) -> list[Block]:
    """The blocks of a conversion in order. Every applied finding stands at exactly one changed block."""
    blocks = list(_blocks(conversion.source.text, conversion.new_text))
    changed = [number for number, block in enumerate(blocks) if block.changed]
    if not changed:
        return blocks
    afterwards: dict[int, list[Finding]] = {number: [] for number in changed}
    spans = {number: _old_span(blocks, number) for number in changed}
    for finding in sorted(conversion.applied):
        nearest = min(changed, key=lambda number: _distance(finding, spans[number]))
        afterwards[nearest].append(finding)
    return [
        Block(block.rows, True, tuple(afterwards[number]), spans[number]) if block.changed else block
        for number, block in enumerate(blocks)
    ]


def edited_lines(conversion: Conversion) -> dict[int, list[Finding]]:
    """The old lines at which edits begin, with the findings that they fix."""
    found: dict[int, list[Finding]] = {}
    for finding, line in conversion.edited():
        found.setdefault(line, []).append(finding)
    return found


def _blocks(old_text: str, new_text: str) -> Iterator[Block]:
    old = [line.rstrip("\r\n") for line in split_lines(old_text)]
    new = [line.rstrip("\r\n") for line in split_lines(new_text)]
    i = j = 0
    for start_i, start_j, size in [*_runs(old, new), (len(old), len(new), 0)]:
        if (i, j) != (start_i, start_j):
            pairs = paired(old[i:start_i], new[j:start_j], i, j)
            yield Block(tuple(_row(old, new, *pair) for pair in pairs), True)
        i, j = start_i + size, start_j + size
        if size:
            same = range(size)
            yield Block(
                tuple(Row(Line(i - k, old[i - k - 1]), Line(j - k, new[j - k - 1])) for k in same[::-1]),
                False,
            )


def _runs(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of lines that are the same in both, in order: where they start and how long they are."""
    i = j = size = 0
    for next_i, next_j in same_lines(old, new):
        if size and (next_i, next_j) == (i + size, j + size):
            size += 1
            continue
        if size:
            yield i, j, size
        i, j, size = next_i, next_j, 1
    if size:
        yield i, j, size


def _row(old: Sequence[str], new: Sequence[str], i: int | None, j: int | None) -> Row:
    if i is None or j is None:
        return Row(None if i is None else Line(i + 1, old[i]), None if j is None else Line(j + 1, new[j]))
    before, after = old[i], new[j]
    head = _shared(before, after)
    tail = _shared(before[head:][::-1], after[head:][::-1])
    return Row(
        Line(i + 1, before, (head, len(before) - tail)),
        Line(j + 1, after, (head, len(after) - tail)),
    )


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _old_span(blocks: Sequence[Block], number: int) -> tuple[int, int]:
    """First and last old line of a block; for pure additions the lines around the place."""
    lines = [row.old.number for row in blocks[number].rows if row.old is not None]
    if lines:
        return lines[0], lines[-1]
    before = blocks[number - 1].rows[-1].old if number else None
    place = before.number if before is not None else 0
    return place, place + 1


def _distance(finding: Finding, span: tuple[int, int]) -> tuple[int, int]:
    first, last = span
    start, end = finding.line, finding.end_line or finding.line
    gap = max(first - end, start - last, 0)
    return gap, abs(start - first)
