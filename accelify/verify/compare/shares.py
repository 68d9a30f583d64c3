"""Whether a figure is one process's share of what the original shows, as far as the runs show it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate

from accelify.verify.compare.entries import Entry
from accelify.verify.compare.numbers import Number
from accelify.verify.events import Loss
from accelify.verify.runs import Run

RECENT = 8
"""Calls of backward before a figure among which the loss that it shows is looked for."""
MEANINGFUL = 3
"""Digits that a figure must have to be recognised as a loss."""


class Share(IntEnum):
    """What is known of a figure that differs; the larger of two counts for a line that shows both."""

    SHOWN = 0
    """It is the main process's share."""
    UNKNOWN = 1
    REFUTED = 2
    """It is not what one share of the original's figure would be."""


class Shares:
    """Judges figures of one run of several processes against the original's."""

    def __init__(self, original: Run, other: Run, tolerance: float) -> None:
        self.losses = original.losses
        self.ranks = [rank.losses for rank in other.ranks]
        self.processes = other.processes
        self.tolerance = tolerance
        self.uneven = _uneven(other)
        self.weighed = any(loss.weight is not None for losses in self.ranks for loss in losses)
        prepared = other.ranks[0].events.get("prepared_loader", [])
        self.total = bool(prepared) and all(event["split"] for event in prepared)

    def judge(self, mine: Entry, theirs: Entry, position: int, everyone: Sequence[Entry]) -> Share:
        """Whether the number at `position` is a share.

        Args:
            mine: what the original shows.
            theirs: what the other run shows in its place.
            everyone: what each process has evaluated there, where all have.
        """
        target, shown = mine.parsed.numbers[position], theirs.parsed.numbers[position]
        if values := self._values(everyone, position):
            if max(values) == min(values):
                # A count of the share's rows is the same everywhere; a figure of different rows is not.
                counts = shown.whole and target.whole and sum(values) == target.value
                return Share.SHOWN if counts else Share.REFUTED
            room = self.tolerance * abs(target.value) + target.unit
            inside = min(values) - room <= target.value <= max(values) + room
            total = self.near(sum(values), target)
            return Share.SHOWN if inside or total else Share.REFUTED
        if shown.whole and target.whole:
            return Share.SHOWN if shown.value * self.processes == target.value else Share.UNKNOWN
        return self._by_losses(mine, theirs, target, shown)

    def of_everyone(self, target: Number, everyone: Sequence[Entry], position: int) -> str:
        """What makes the original's figure of the figures of all processes: "mean", "sum" or ""."""
        values = self._values(everyone, position)
        if not values or max(values) == min(values):
            return ""
        calls = everyone[0].calls
        scales = [losses[calls - 1].scale if 0 < calls <= len(losses) else 1.0 for losses in self.ranks]
        weighted = sum(value * scale for value, scale in zip(values, scales, strict=True)) / len(values)
        if self.near(sum(values) / len(values), target) or self.near(weighted, target):
            return "mean"
        return "sum" if self.near(sum(values), target) else ""

    def is_own_loss(self, mine: Entry, theirs: Entry, position: int) -> bool:
        """Whether the original shows a loss, or the mean or sum of some, and the other run that of its share."""
        numbers = mine.parsed.numbers[position], theirs.parsed.numbers[position]
        return self._by_losses(mine, theirs, *numbers) is Share.SHOWN

    def rounds_alike(self, mine: Entry, theirs: Entry, position: int, since: int) -> bool:
        """Whether the original shows a figure of its losses, and the other run one of all ranks', each counted alike.

        Where a batch is cut unevenly, as a pass's last one, or training weighs the ranks' losses, that is nearly the
        same figure. Where neither is so, it is the same, and a difference is one of the losses.

        Args:
            mine, theirs, position: as for `judge`.
            since: calls of backward before the figure of the same place before this one.
        """
        if not (self.uneven or self.weighed):
            return False
        target, shown = mine.parsed.numbers[position], theirs.parsed.numbers[position]
        counts = {len(losses[: theirs.calls]) for losses in self.ranks}
        if target.whole or mine.calls != theirs.calls or counts != {mine.calls} or not target.value:
            return False
        means = [
            sum(loss.value for loss in losses) / len(losses) for losses in zip(*self.ranks, strict=False)
        ]
        for start in {since, 0}:
            whole, own = sum(self.losses[start : mine.calls]), sum(means[start : mine.calls])
            # Whatever the losses are multiplied or divided by, it is the same in both runs; but a runtime that divides
            # by the steps of an accumulation leaves that to be done.
            expected = target.value * _without_whole_factor(own / whole) if whole else 0.0
            room = 1.5 * target.unit + self.tolerance * abs(expected)
            if expected and abs(expected - shown.value) <= room:
                return True
        return False

    def is_batch_loss(self, mine: Entry, theirs: Entry, position: int) -> bool:
        """Whether the original shows the loss of one batch, and the other run that of its share of the same batch."""
        target, shown = mine.parsed.numbers[position], theirs.parsed.numbers[position]
        own = self.ranks[theirs.rank]
        if _digits(target) < MEANINGFUL or target.whole or not 0 < mine.calls == theirs.calls <= len(own):
            return False
        last = mine.calls - 1
        return self._same(self.losses[last], target) and self._same(own[last].value, shown)

    def near(self, value: float, number: Number) -> bool:
        """Whether `number` shows `value`, as far as its digits go."""
        return abs(value - number.value) <= number.unit * (1 + 1e-6) + self.tolerance * abs(value)

    def _values(self, everyone: Sequence[Entry], position: int) -> list[float]:
        if len(everyone) != self.processes or len({entry.parsed.words for entry in everyone}) != 1:
            return []
        return [entry.parsed.numbers[position].value for entry in everyone]

    def _by_losses(self, mine: Entry, theirs: Entry, target: Number, shown: Number) -> Share:
        losses = self.ranks[theirs.rank]
        if _digits(target) < MEANINGFUL or target.whole or mine.calls != theirs.calls:
            return Share.UNKNOWN
        whole = self.losses[: mine.calls]
        own = [loss.value for loss in losses[: theirs.calls]]
        if len(own) != len(whole):
            return Share.UNKNOWN
        recognised = False
        for back in range(1, min(RECENT, len(whole)) + 1):
            if self._same(whole[-back], target):
                recognised = True
                if self._same(own[-back], shown):
                    return Share.SHOWN
        sums, own_sums = _sums(whole), _sums(own)
        for start in range(len(whole)):
            count = len(whole) - start
            # Over the calls since `start`: their sum, and their mean.
            for divisor in (1, count):
                if self._same(sums[start] / divisor, target) and self._same(own_sums[start] / divisor, shown):
                    return Share.SHOWN
        return Share.REFUTED if recognised and _scaled_evenly(losses[: theirs.calls]) else Share.UNKNOWN

    def _same(self, value: float, number: Number) -> bool:
        # A figure with few digits is next to many values.
        return abs(value - number.value) <= 0.51 * number.unit + self.tolerance * abs(value)


def _uneven(run: Run) -> bool:
    """Whether some batch was cut into shares that are not of one size."""
    sizes: dict[tuple[str, int, int], set[int]] = {}
    for rank in run.ranks:
        for event in rank.events.get("batch", ()):
            place = str(event["key"]), event["number"], event["position"]
            sizes.setdefault(place, set()).add(event["size"])
    scales = zip(*(rank.losses for rank in run.ranks), strict=False)
    return any(len(found) > 1 for found in sizes.values()) or any(
        len({loss.scale for loss in row}) > 1 for row in scales
    )


def _without_whole_factor(ratio: float) -> float:
    """A ratio that is near a whole number, or one over one, divided by it."""
    if ratio <= 0:
        return ratio
    times = max(1, round(ratio)) if ratio > 1 else 1 / max(1, round(1 / ratio))
    return ratio / times


def _sums(values: Sequence[float]) -> list[float]:
    """The sum of the values from each position to the end."""
    return list(accumulate(reversed(values)))[::-1]


def _digits(number: Number) -> int:
    digits = [letter for letter in number.text.lower().split("e")[0] if letter.isdigit()]
    return len("".join(digits).lstrip("0"))


def _scaled_evenly(losses: Sequence[Loss]) -> bool:
    """Whether every loss was the mean of its share, so that a script that shows it shows that very number."""
    return all(loss.scale == 1.0 for loss in losses)
