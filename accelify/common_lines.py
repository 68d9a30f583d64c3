"""Lines that two versions of a text have in common, and those that became others."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

_ALIKE = 0.5


def same_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where lines are, from 0, that are the same in both, in order.

    Lines that occur once in both are found first, so that only what is between them has to be compared; a comparison
    of everything with everything would be slow on long scripts with many blank lines.
    """
    i = j = 0
    for anchor_i, anchor_j in [*_anchors(old, new), (len(old), len(new))]:
        matcher = difflib.SequenceMatcher(None, old[i:anchor_i], new[j:anchor_j], autojunk=False)
        for gap_i, gap_j, size in matcher.get_matching_blocks():
            yield from ((i + gap_i + k, j + gap_j + k) for k in range(size))
        if anchor_i < len(old):
            yield anchor_i, anchor_j
        i, j = anchor_i + 1, anchor_j + 1


def paired(
    old: Sequence[str], new: Sequence[str], i1: int, j1: int
) -> Iterator[tuple[int | None, int | None]]:
    """Put each old line beside the new line that it became, in order; lines without a partner are alone."""
    j = 0
    for i, line in enumerate(old):
        partner = next((k for k in range(j, len(new)) if _alike(line, new[k])), None)
        if partner is None:
            yield i1 + i, None
            continue
        for k in range(j, partner):
            yield None, j1 + k
        yield i1 + i, j1 + partner
        j = partner + 1
    for k in range(j, len(new)):
        yield None, j1 + k


def _alike(old: str, new: str) -> bool:
    if not old.strip() or not new.strip():
        return old == new
    matcher = difflib.SequenceMatcher(None, old.strip(), new.strip(), autojunk=False)
    return (
        matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE
    )


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The longest list of lines that occur once in both and are in the same order."""
    once_old, once_new = Counter(old), Counter(new)
    places = {line: j for j, line in enumerate(new) if once_new[line] == 1}
    common = [(i, places[line]) for i, line in enumerate(old) if once_old[line] == 1 and line in places]
    # Patience sorting: `ends` has the smallest last place of a list of each length, `before` the way back.
    ends: list[int] = []
    numbers: list[int] = []
    before: list[int | None] = []
    for number, (_, j) in enumerate(common):
        length = bisect_left(ends, j)
        before.append(numbers[length - 1] if length else None)
        ends[length : length + 1] = [j]
        numbers[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    last = numbers[-1] if numbers else None
    while last is not None:
        chain.append(common[last])
        last = before[last]
    return chain[::-1]
