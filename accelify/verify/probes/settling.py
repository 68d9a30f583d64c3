"""What runs say of demands that are not proved: each holds, is violated, was not reached, or cannot be settled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from accelify.verify.compare.losses import LOSS_TOLERANCE, Comparison, relative_differences
from accelify.verify.compare.verdict import NOT_CHECKED, Check, Verdict
from accelify.verify.compare.wording import ordinal, ranks_named
from accelify.verify.probes.inserting import MOST
from accelify.verify.probes.planning import RESULT, Demand
from accelify.verify.probes.values import Values, agree, first_difference, flat, names, paths_of, shown_part
from accelify.verify.runs import Run

# The rows of the verification that look at the same, where they have a check at the statement.
_AT_PLACE = {
    "content": ("printed", "logged", "files"),
    "once": ("printed", "logged", "effects"),
    "unwrapped": ("files",),
}
# Those that look at it for the whole run, by what the script does there or by the demand.
_OF_RUN = {
    "schedule": ("rates",),
    "step": ("steps",),
    "draw": ("samples", "steps"),
    "prepared": ("weights",),
    "let go": ("objects",),
    "accumulated": ("steps", "weights"),
}
_SEEN_BY_OTHERS = ("content", "once", "path", "all ranks", "loss", "unwrapped", "rounds")
_SAME = (Verdict.EQUAL, Verdict.ROUNDING, Verdict.NOT_DIVIDED)
UNREPEATED = "two runs of the original itself differ here"
NOT_SHOWN = "the runs do not show whether it holds"
ON_ONE = "on a CPU all tensors are in one place; `verify --gpu` shows whether it holds"


class Outcome(StrEnum):
    """What became of a demand; of several runs the one that comes first here counts."""

    VIOLATED = "violated"
    HELD = "held"
    NOT_SETTLED = "not settled"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Settled:
    """A demand and what became of it.

    Args:
        demand: what was to be settled.
        outcome: what became of it.
        values: for one that is violated the values, rank by rank; for one that is not settled the reason.
        fails: others can see what is wrong, and no other comparison saw it.
    """

    demand: Demand
    outcome: Outcome
    values: str = ""
    fails: bool = False

    @property
    def sentence(self) -> str:
        """Place, the demand, and the values."""
        return f"{self.outcome}, {self.demand.place}: {self.demand.sentence}" + (
            f": {self.values}" if self.values else ""
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "file": self.demand.file,
            "line": self.demand.line,
            "sink": self.demand.sink,
            "demand": self.demand.demand,
            "outcome": str(self.outcome),
            "sentence": self.demand.sentence,
            "values": self.values,
            "fails": self.fails,
        }


def settle(
    demands: Iterable[Demand], comparison: Comparison, others: Sequence[Run] = (), again: Run | None = None
) -> list[Settled]:
    """Settle demands by a run on several processes.

    Assumptions about what cannot be looked at are left out.

    Args:
        demands: what is not proved.
        comparison: the run, with its reference.
        others: further runs of which a value may be.
        again: the reference again. What it does not repeat is not settled.
    """
    quiet = comparison.quiet
    settler = _Settler(comparison, others, again)
    # Without chance the same run can be compared where chance keeps this one from it.
    calm = None if quiet is None or quiet.run.failure else _Settler(quiet, (), None)
    found = []
    for demand in demands:
        one = settler.settle(demand)
        if one is not None and one.outcome is Outcome.NOT_SETTLED and calm is not None:
            one = calm.settle(demand)
        if one is not None:
            found.append(one)
    return found


def worst(runs: Iterable[Iterable[Settled]]) -> list[Settled]:
    """The outcome of each demand over several runs: violated if it was in one, else met if it was in one."""
    order = list(Outcome)
    result: dict[Demand, Settled] = {}
    for run in runs:
        for one in run:
            known = result.get(one.demand)
            if known is None or order.index(one.outcome) < order.index(known.outcome):
                result[one.demand] = one
    return list(result.values())


def by_devices(settled: Iterable[Settled], on_gpu: Comparison | None) -> list[Settled]:
    """The same with what is asked of devices settled by the run on a simulated GPU: no run on a CPU shows it."""
    result = []
    for one in settled:
        if one.demand.demand == "one device" and one.outcome is Outcome.NOT_SETTLED:
            checks = on_gpu.checks if on_gpu is not None else []
            failed = [check for check in checks if check.verdict is Verdict.FAILED]
            if failed:
                # A run ends at the first one, and says so in a row of its own.
                one = replace(one, outcome=Outcome.VIOLATED, values=failed[0].sentence)
            elif on_gpu is not None:
                one = replace(one, outcome=Outcome.HELD, values="")
            else:
                one = replace(one, values=ON_ONE)
        result.append(one)
    return result


class _Settler:
    def __init__(self, comparison: Comparison, others: Sequence[Run], again: Run | None) -> None:
        self.run = comparison.run
        self.comparison = comparison
        self.reference = comparison.reference
        self.references = [run for run in (comparison.reference, *others) if run is not None]
        self.again = again
        self.tolerance = max(comparison.allowed, default=LOSS_TOLERANCE * (1 + len(self.run.losses) / 4))

    def settle(self, demand: Demand) -> Settled | None:
        """What this run says of a demand; None of an assumption about what cannot be looked at."""
        checks = self._checks(demand)
        seen = any(check.verdict in (Verdict.DIFFERENT, Verdict.FAILED) for check in checks)
        if not demand.seen and not checks:
            return Settled(demand, Outcome.NOT_SETTLED, "there is no place for a probe")
        if demand.seen and not any(Values(rank, demand.number).count for rank in self.run.ranks):
            left_out = demand.demand == "once" and not self.run.failure and self._by_reference(demand)
            return (
                Settled(demand, Outcome.VIOLATED, "done by no rank", not seen)
                if left_out
                else Settled(demand, Outcome.NOT_REACHED)
            )
        if demand.demand in ("content", "unwrapped"):
            outcome, values = self._content(demand, checks)
            # A part of the original's figure does not count against a run, whoever finds it.
            seen = seen or any(check.verdict is Verdict.NOT_COMPARABLE for check in checks)
        elif demand.demand == "once":
            outcome, values = self._once(demand, checks)
        elif demand.demand == "path":
            outcome, values = self._same(demand, paths=True)
        elif demand.demand == "all ranks":
            outcome, values = self._all_ranks(demand)
        elif demand.demand == "loss":
            outcome, values = self._loss(demand)
            seen = self._differs("losses") or self._differs("weights")
        elif demand.demand == RESULT:
            if not any(flat(call) for rank in self.run.ranks for call in Values(rank, demand.number).calls):
                return None
            outcome, values = self._same(demand)
        else:
            outcome, values = self._by_checks(checks)
        robust = outcome is Outcome.VIOLATED and demand.demand in ("once", "path")
        if self.run.failure and not robust:
            # Each rank was ended somewhere: what it did not do it may have had to do yet.
            return Settled(demand, Outcome.NOT_SETTLED, "the run failed")
        fails = outcome is Outcome.VIOLATED and demand.demand in _SEEN_BY_OTHERS
        return Settled(demand, outcome, values, fails and not seen)

    # What other comparisons saw

    def _checks(self, demand: Demand) -> list[Check]:
        """The checks of the verification that look at the same as the demand."""
        at_place = _AT_PLACE.get(demand.demand, ())
        of_run = _OF_RUN.get(demand.demand, ())
        if demand.demand == "rounds":
            of_run = _OF_RUN.get(demand.sink, ())
        return [
            check
            for check in self.comparison.checks
            if check.aspect in of_run or (check.aspect in at_place and check.line == demand.site)
        ]

    def _differs(self, aspect: str) -> bool:
        return any(c.aspect == aspect and c.verdict is Verdict.DIFFERENT for c in self.comparison.checks)

    def _by_checks(self, checks: Sequence[Check]) -> tuple[Outcome, str]:
        bad = next((check for check in checks if check.verdict is Verdict.DIFFERENT), None)
        if bad is not None:
            return Outcome.VIOLATED, bad.sentence
        if checks and all(check.verdict in _SAME for check in checks):
            return Outcome.HELD, ""
        open_ = next((check.sentence for check in checks if check.sentence), "")
        return Outcome.NOT_SETTLED, open_ or self.run.failure or NOT_SHOWN

    def _by_reference(self, demand: Demand) -> bool:
        return any(Values(run.ranks[0], demand.number).count for run in self.references)

    # One demand

    def _content(self, demand: Demand, checks: Sequence[Check]) -> tuple[Outcome, str]:
        if checks and all(check.verdict in _SAME for check in checks):
            return Outcome.HELD, ""
        for check in checks:
            if check.verdict is Verdict.NOT_COMPARABLE and not (
                check.partial or check.sentence == NOT_CHECKED
            ):
                return Outcome.NOT_SETTLED, check.sentence
        outcome, values = self._as_in_original(demand)
        if outcome is not Outcome.NOT_SETTLED or not checks:
            return outcome, values
        return self._by_checks(checks)

    def _as_in_original(self, demand: Demand) -> tuple[Outcome, str]:
        """The first rank that came there shows what one of the references has; without any, all ranks the same."""
        by_rank = [Values(rank, demand.number) for rank in self.run.ranks]
        first = next(values for values in by_rank if values.count)
        known = [Values(run.ranks[0], demand.number) for run in self.references]
        known = [values for values in known if values.count and not run_differs(values, first)]
        if not any(flat(call) for call in first.calls):
            return Outcome.NOT_SETTLED, "its value cannot be looked at"
        if not known:
            return self._same(demand)
        if any(agree(values.calls, first.calls, self.tolerance) for values in known):
            return Outcome.HELD, ""
        if self.again is not None:
            repeated = Values(self.again.ranks[0], demand.number)
            if not agree(known[0].calls, repeated.calls, self.tolerance):
                return Outcome.NOT_SETTLED, UNREPEATED
        if self.comparison.verdict is Verdict.NOT_COMPARABLE:
            return Outcome.NOT_SETTLED, self.comparison.reason
        return Outcome.VIOLATED, _values_in_words(by_rank, known[0], self.tolerance)

    def _once(self, demand: Demand, checks: Sequence[Check]) -> tuple[Outcome, str]:
        ranks = [number for number, rank in enumerate(self.run.ranks) if Values(rank, demand.number).count]
        if len(ranks) == 1 or (checks and all(check.verdict is not Verdict.DIFFERENT for check in checks)):
            return Outcome.HELD, ""
        return Outcome.VIOLATED, f"done by {ranks_named(ranks)}"

    def _same(self, demand: Demand, *, paths: bool = False) -> tuple[Outcome, str]:
        """All ranks that come there have the same values; of paths, those that name a file or a folder."""
        by_rank = [values for rank in self.run.ranks if (values := Values(rank, demand.number)).count]
        if paths:
            by_rank = [values.only(paths_of) for values in by_rank]
        if len(by_rank) == 1:
            return Outcome.HELD, ""
        if len({values.count for values in by_rank}) > 1:
            return Outcome.NOT_SETTLED, "the ranks do not come there equally often"
        if not any(flat(call) for values in by_rank for call in values.calls):
            return Outcome.NOT_SETTLED, "its value cannot be looked at"
        first = by_rank[0]
        if all(agree(first.calls, values.calls, 0.0 if paths else self.tolerance) for values in by_rank[1:]):
            return Outcome.HELD, ""
        return Outcome.VIOLATED, _values_in_words(by_rank, None, 0.0 if paths else self.tolerance)

    def _all_ranks(self, demand: Demand) -> tuple[Outcome, str]:
        by_rank = [Values(rank, demand.number) for rank in self.run.ranks]
        counts = [values.count for values in by_rank]
        if len(set(counts)) > 1:
            times = ", ".join(f"rank {rank} {count} times" for rank, count in enumerate(counts))
            return Outcome.VIOLATED, f"comes there: {times}"
        steps = [values.steps for values in by_rank]
        apart = next((k for k, row in enumerate(zip(*steps, strict=False)) if len(set(row)) > 1), None)
        if apart is None:
            return Outcome.HELD, ""
        when = ", ".join(f"rank {rank} after step {row[apart]}" for rank, row in enumerate(steps))
        return Outcome.VIOLATED, f"comes there for {ordinal(apart + 1)} time: {when}"

    def _loss(self, demand: Demand) -> tuple[Outcome, str]:
        """The mean over the ranks of what is called backward on is the original's, at the same places in the order."""
        if self.reference is None or self.run.failure:
            return Outcome.NOT_SETTLED, self.run.failure or "there is nothing to compare with"
        if self.comparison.verdict is Verdict.NOT_COMPARABLE:
            return Outcome.NOT_SETTLED, self.comparison.reason
        here = [k for k, loss in enumerate(self.run.ranks[0].losses) if loss.site == demand.site]
        if not here:
            return Outcome.NOT_SETTLED, "no backward was seen there"
        before, after = self.reference.losses, self.run.losses
        allowed = self.comparison.allowed or [self.tolerance] * len(before)
        for k, difference in enumerate(relative_differences(before, after)):
            if k in here and difference > allowed[min(k, len(allowed) - 1)]:
                each = ", ".join(
                    f"rank {number} {rank.losses[k].value * rank.losses[k].scale:.6g}"
                    for number, rank in enumerate(self.run.ranks)
                )
                values = f"{each}, together {after[k]:.6g}, in the original {before[k]:.6g}"
                return Outcome.VIOLATED, f"{values} ({ordinal(k + 1)} backward)"
        if self._differs("weights"):
            return Outcome.NOT_SETTLED, "the losses are the original's, the weights at the end are not"
        return Outcome.HELD, ""


def run_differs(a: Values, b: Values) -> bool:
    """Whether two runs cannot be compared at a place: one shows other parts there."""
    return not a.calls or not b.calls or names(a.calls[0]) != names(b.calls[0])


def _values_in_words(by_rank: Sequence[Values], original: Values | None, tolerance: float) -> str:
    """The first value that differs, of each rank and of the original."""
    everyone = [*by_rank, *([original] if original is not None else [])]
    there = [values for values in everyone if values.calls]
    base = original if original is not None else there[0]
    for values in there:
        place = first_difference(base.calls, values.calls, tolerance)
        if place is not None:
            break
    else:
        return ""
    call, number = place
    words = [
        f"rank {rank} {shown_part(values.calls, call, number)}"
        for rank, values in enumerate(by_rank)
        if values.calls
    ]
    if original is not None:
        words.append(f"in the original {shown_part(original.calls, call, number)}")
    many = max(len(values.calls) for values in there)
    text = ", ".join(words)
    return text if many == 1 else f"{text} ({ordinal(call + 1)} of {many if many < MOST else 'many'})"
