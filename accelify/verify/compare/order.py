"""What happened before what on the ranks of a run, from what `observe/ordering.py` wrote: vector clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accelify.verify.events import RankRecord

Key = tuple[Any, ...]
Clock = list[int]


class HappensBefore:
    """The order of the events of a run.

    Args:
        ranks: the records of each rank.

    A position is a rank and the number `n` of an event among that rank's. A collective to which a rank never came
    (the run was cut short) orders nothing for that rank.
    """

    def __init__(self, ranks: Sequence[RankRecord]) -> None:
        self._ranks = range(len(ranks))
        self._syncs = [record.events.get("sync", []) for record in ranks]
        self._members: dict[str, list[int]] = {"setup": list(self._ranks)}
        for record in ranks:
            for group in record.events.get("group", []):
                self._members[group["name"]] = group["ranks"]
        # What each rank knew of the others after each of its syncs: position and clock, ascending.
        self._clocks: list[list[tuple[int, Clock]]] = [[(-1, [-1] * len(ranks))] for _ in ranks]
        self._contributed: dict[Key, dict[int, Clock]] = {}
        self._simulate()

    def before(self, first: tuple[int, int], second: tuple[int, int]) -> bool:
        """Whether the first position comes before the second in every run with the same collectives."""
        if first[0] == second[0]:
            return first[1] < second[1]
        return self._clock(*second)[first[0]] >= first[1]

    def _clock(self, rank: int, position: int) -> Clock:
        known = self._clocks[rank]
        low, high = 0, len(known)
        while high - low > 1:
            middle = (low + high) // 2
            if known[middle][0] < position:
                low = middle
            else:
                high = middle
        return known[low][1]

    def _simulate(self) -> None:
        at = [0 for _ in self._ranks]
        for rank in self._ranks:
            self._contribute(rank, 0)
        while True:
            unfinished = [rank for rank in self._ranks if at[rank] < len(self._syncs[rank])]
            if not unfinished:
                return
            # Where nobody can go on, somebody never came; the one that got least far goes on without.
            able = [rank for rank in unfinished if self._is_complete(rank, at[rank])] or [
                min(unfinished, key=lambda rank: at[rank])
            ]
            for rank in able:
                self._pass(rank, at[rank])
                at[rank] += 1
                self._contribute(rank, at[rank])

    def _contribute(self, rank: int, number: int) -> None:
        """The rank has reached its next sync: all ranks that take part in it come after what was before."""
        if number >= len(self._syncs[rank]):
            return
        sync = self._syncs[rank][number]
        clock = list(self._clocks[rank][-1][1])
        clock[rank] = sync["n"]
        for key, _ in self._operations(rank, sync, ("whole", "issued"), waiting=False):
            self._contributed.setdefault(key, {}).setdefault(rank, clock)

    def _is_complete(self, rank: int, number: int) -> bool:
        operations = self._operations(rank, self._syncs[rank][number], ("whole", "waited"), waiting=True)
        return all(
            source in self._contributed.get(key, {}) for key, sources in operations for source in sources
        )

    def _pass(self, rank: int, number: int) -> None:
        sync = self._syncs[rank][number]
        clock = list(self._clocks[rank][-1][1])
        for key, sources in self._operations(rank, sync, ("whole", "waited"), waiting=True):
            found = self._contributed.get(key, {})
            for source in sources:
                if source != rank and source in found:
                    clock = [max(a, b) for a, b in zip(clock, found[source], strict=True)]
        clock[rank] = sync["n"]
        self._clocks[rank].append((sync["n"], clock))

    def _operations(
        self, rank: int, sync: dict[str, Any], parts: tuple[str, ...], waiting: bool
    ) -> Iterator[tuple[Key, list[int]]]:
        """Each operation of a sync and the ranks that this one hears of in it."""
        for group, spans in sync.get("all", {}).items():
            members = self._members.get(group, [])
            for first, last in spans:
                # What came before the first is before all, and what is known after the last is known after each.
                numbers = range(first, last + 1)
                for number in numbers:
                    yield (group, number), members
        for part in parts:
            for kind, group, number, other_rank in sync.get(part, []):
                if kind == "send":
                    if not waiting:
                        yield (group, rank, other_rank, number), []
                elif kind == "receive":
                    if waiting:
                        yield (group, other_rank, rank, number), [other_rank]
                else:
                    members = self._members.get(group, [])
                    hears = kind == "all" or (kind == "to" and rank == other_rank)
                    yield (group, number), members if hears else [other_rank] if kind == "from" else []
