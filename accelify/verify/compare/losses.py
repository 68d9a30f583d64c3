"""The numbers of training: losses, learning rates, steps and final weights of one run against another's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from accelify.verify.compare.numbers import CONTROL, CONTROL_LIMIT
from accelify.verify.compare.verdict import Check, Verdict, worst
from accelify.verify.events import same, same_end
from accelify.verify.runs import Run

LOSS_TOLERANCE = 1e-5
"""Relative difference of a loss that rounding in single precision explains before the first step."""
GROWTH = 0.25
"""Share of that tolerance added with every optimizer step: each update carries the differences before it."""
UPDATE_TOLERANCE = 2e-3
"""Distance of the weights at the end, as a share of how far the original has moved them, that rounding explains."""
_PRECISIONS = {"float16": 500.0, "bfloat16": 4000.0}

EXPLANATIONS = {
    "dropout": "dropout is active in training ({what}): each process draws masks of its own",
    "batch statistics": "statistics are taken over each process's own share of the batch ({what})",
    "evaluation": "random numbers are drawn for a batch outside of training ({what}): each process draws for its "
    "own share, and what is drawn afterwards, such as the order of the samples, is another",
    "noise": "random numbers are drawn in the training step ({what}): each process draws for its own share, and what "
    "is drawn afterwards, such as the order of the samples, is another",
    "loss scaling": "fp16 loss scaling skips other steps, since each process sees gradients of its own ({what})",
    "augmentation": "random numbers are drawn for each sample ({what}): each process draws for its own share",
}


@dataclass(frozen=True)
class Difference:
    """The first difference: at which call of backward or optimizer step (from 1), and both values."""

    what: str
    number: int
    original: float | None
    other: float | None

    def sentence(self) -> str:
        values = f"{_number(self.original)} in the original, {_number(self.other)} in this run"
        return f"{self.what} {self.number}: {values}" if self.number else f"{self.what}: {values}"


@dataclass
class Comparison:
    """One run against its reference: the original, or for several processes the original with larger batches.

    `largest` is the largest relative difference of a loss and `largest_at` its call of backward, from 1; `update` the
    distance of the weights at the end as a share of how far the original has moved them. `tolerance` is the limit for
    `largest` at that place, `allowed` the limits of all calls.
    """

    run: Run
    verdict: Verdict
    reason: str = ""
    reference: Run | None = None
    first: Difference | None = None
    largest: float = 0.0
    largest_at: int = 0
    tolerance: float = LOSS_TOLERANCE
    update: float | None = None
    allowed: list[float] = field(default_factory=list)
    same_rates: bool = True
    same_weights: bool = True
    quiet: Comparison | None = None
    """The same again with chance taken out of both runs, where chance keeps them from being compared."""
    checks: list[Check] = field(default_factory=list)
    """Everything that was compared, training included."""
    accepted: set[tuple[str, str]] = field(default_factory=set)
    """Aspect and key of each check that is as in the original in batches of its size, not in larger ones."""

    @property
    def overall(self) -> Verdict:
        """The verdict of all checks together; that of training where there are none yet.

        A figure that shows one process's part of the original's does not make a run not comparable.
        """
        if not self.checks:
            return self.verdict
        return worst([check.verdict for check in self.checks if not check.partial])

    def differing(self) -> set[tuple[str, str]]:
        """Aspect and key of each check that is different."""
        return {(check.aspect, check.key) for check in self.checks if check.verdict is Verdict.DIFFERENT}

    def aspects(self) -> dict[str, Verdict]:
        """The worst verdict of each aspect that was compared."""
        found: dict[str, list[Verdict]] = {}
        for check in self.checks:
            found.setdefault(check.aspect, []).append(check.verdict)
        return {aspect: worst(verdicts) for aspect, verdicts in found.items()}

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data, for `--json`."""
        first = None
        if self.first is not None:
            first = {
                "what": self.first.what,
                "number": self.first.number,
                "original": self.first.original,
                "this": self.first.other,
            }
        return {
            "run": self.run.label,
            "processes": self.run.processes,
            "on": self.run.title,
            "steps": self.run.steps,
            "verdict": str(self.overall),
            "training": str(self.verdict),
            "reason": self.reason,
            "aspects": {aspect: str(verdict) for aspect, verdict in self.aspects().items()},
            "checks": [check.to_json() for check in self.checks],
            "first_difference": first,
            "largest_relative_difference": self.largest,
            "largest_at": self.largest_at,
            "tolerance": self.tolerance,
            "update_difference": self.update,
            "same_learning_rates": self.same_rates,
            "same_weights": self.same_weights,
            "nothing_shared_out": self.run.repeated,
            "without_chance": self.quiet.to_json() if self.quiet else None,
            "losses": self.run.losses,
            "reference_losses": self.reference.losses if self.reference is not None else [],
            "learning_rates": [list(rates) for rates in self.run.rates],
            "seconds": round(self.run.seconds, 3),
        }


def relative_differences(original: Sequence[float], other: Sequence[float]) -> list[float]:
    """|a - b| relative to the loss, which near zero is taken as a tenth of the median loss."""
    sizes = [abs(value) for value in original if math.isfinite(value)]
    floor = 0.1 * median(sizes) if sizes else 0.0
    result = []
    for a, b in zip(original, other, strict=False):
        if same(a, b):
            result.append(0.0)
        elif not (math.isfinite(a) and math.isfinite(b)):
            result.append(math.inf)
        else:
            result.append(abs(a - b) / max(abs(a), abs(b), floor))
    return result


def tolerances(original: Run) -> list[float]:
    """What rounding may make of each loss: that of single precision, or of half where used, growing by step."""
    base = LOSS_TOLERANCE * _PRECISIONS.get(coarsest(original), 1.0)
    return [min(base * (1 + GROWTH * loss.step), CONTROL_LIMIT) for loss in original.ranks[0].losses]


def coarsest(run: Run) -> str:
    """The half precision that a run computes in, the coarser one of two; empty where there is none."""
    used = {run.ranks[0].autocast, *(loss.dtype for loss in run.ranks[0].losses)}
    return max((name for name in _PRECISIONS if name in used), key=_PRECISIONS.__getitem__, default="")


def compare(original: Run, other: Run, *, control: Run | None = None) -> Comparison:
    """Compare `other` with `original`.

    Args:
        control: the original again with gradients disturbed as rounding would; if present, it shows how far
            rounding alone carries in this script.
    """
    result = Comparison(other, Verdict.EQUAL, reference=original)
    if other.failure:
        result.verdict, result.reason = Verdict.FAILED, other.failure
        return result
    _measure(original, other, result)
    if other.same_as(original) and not other.uneven:
        return result
    first = result.first
    allowed = tolerances(original)
    update_allowed = UPDATE_TOLERANCE * allowed[0] / LOSS_TOLERANCE if allowed else UPDATE_TOLERANCE
    wrong = _beyond(original, other, result, allowed, update_allowed)
    if wrong and control is not None:
        allowed, update_allowed, chaotic = _carried(original, control, allowed, update_allowed)
        result.allowed = list(allowed)
        still = _beyond(original, other, result, allowed, update_allowed)
        if still and chaotic and not structural(original, other):
            result.verdict = Verdict.NOT_COMPARABLE
            result.reason = (
                "rounding alone grows this far here: the original with its gradients disturbed in the last bit "
                "goes ways of its own too"
            )
            return result
        wrong = still
    if not wrong:
        result.verdict, result.first = Verdict.ROUNDING, first
        result.tolerance = allowed[result.largest_at - 1] if result.largest_at else LOSS_TOLERANCE
        return result
    reasons = dict(original.ranks[0].reasons) if other.processes > 1 else {}
    skipped = reasons.pop("loss scaling", None)
    if skipped and _skips_other_steps(original, other, allowed) and not other.uneven:
        result.verdict = Verdict.NOT_COMPARABLE
        result.reason = EXPLANATIONS["loss scaling"].format(what=skipped)
        return result
    if reasons and not structural(original, other):
        result.verdict = Verdict.NOT_COMPARABLE
        result.reason = explained(reasons)
        return result
    result.verdict, result.reason = Verdict.DIFFERENT, wrong
    return result


def explained(reasons: dict[str, str]) -> str:
    """Why ranks that draw and measure for themselves cannot have the original's numbers."""
    return "; ".join(EXPLANATIONS[key].format(what=what) for key, what in reasons.items())


def _measure(original: Run, other: Run, result: Comparison) -> None:
    differences = relative_differences(original.losses, other.losses)
    if differences and max(differences) > 0:
        result.largest = max(differences)
        result.largest_at = differences.index(result.largest) + 1
    result.same_rates = original.rates == other.rates
    result.same_weights = same_end(original.ranks[0], other.ranks[0])
    deviation = other.ranks[0].deviation
    result.update = deviation["update"] if deviation else None
    for number, difference in enumerate(differences):
        if difference > 0:
            result.first = Difference("loss", number + 1, original.losses[number], other.losses[number])
            break


def structural(original: Run, other: Run) -> str:
    """What no noise explains: another number of losses or steps, other learning rates, ranks that disagree."""
    return other.uneven or counts(original, other) or rates(original, other)


def counts(original: Run, other: Run) -> str:
    """What differs in the numbers of backward calls, of optimizer steps and of trained tensors."""
    if len(original.losses) != len(other.losses):
        return f"the original calls backward {len(original.losses)} times, this run {len(other.losses)} times"
    if len(original.rates) != len(other.rates):
        return f"the original makes {len(original.rates)} optimizer steps, this run {len(other.rates)}"
    if original.ranks[0].parameters != other.ranks[0].parameters:
        return f"the original trains {original.ranks[0].parameters} tensors, this run {other.ranks[0].parameters}"
    return ""


def rates(original: Run, other: Run) -> str:
    """The first optimizer step that has another learning rate, as far as both runs go."""
    number = first_other_rates(original.rates, other.rates)
    if number is None:
        return ""
    values = f"{numbers(original.rates[number])} in the original, {numbers(other.rates[number])} in this run"
    return f"the learning rate of step {number + 1} is another one: {values}"


def first_other_rates(expected: Sequence[Sequence[float]], found: Sequence[Sequence[float]]) -> int | None:
    """The first step, from 0, whose learning rates are others, as far as both go."""
    pairs = enumerate(zip(expected, found, strict=False))
    return next((number for number, (a, b) in pairs if not same_rates(a, b)), None)


def same_rates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two steps' learning rates are the same, as far as the order of their computation allows."""
    return len(a) == len(b) and all(
        abs(x - y) <= 1e-9 * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True)
    )


def _beyond(
    original: Run, other: Run, result: Comparison, allowed: Sequence[float], update_allowed: float
) -> str:
    """The first difference that rounding does not explain, as a sentence; empty when there is none."""
    problem = structural(original, other)
    differences = relative_differences(original.losses, other.losses)
    for number, (difference, limit) in enumerate(zip(differences, allowed, strict=False)):
        if difference > limit:
            result.first = Difference("loss", number + 1, original.losses[number], other.losses[number])
            result.tolerance = limit
            sizes = f"(relative difference {difference:.1e}, tolerance {limit:.1e})"
            return problem or f"{result.first.sentence()} {sizes}"
    if problem:
        return problem
    if result.update is not None and result.update > update_allowed:
        return (
            f"the weights end apart by {result.update:.1e} of how far training moved them (tolerance "
            f"{update_allowed:.1e}), though the losses agree"
        )
    return _ends(other, update_allowed)


def _ends(other: Run, allowed: float) -> str:
    """What differs in buffers and optimizer states at the end, though losses and weights agree."""
    deviation = other.ranks[0].deviation or {}
    for what, words in (("buffers", "the models' buffers"), ("states", "the optimizers' states")):
        distance = deviation.get(what)
        if distance is not None and distance > allowed:
            return f"{words} end {distance:.1e} of their size apart (tolerance {allowed:.1e}), though the losses agree"
    return ""


def _skips_other_steps(original: Run, other: Run, allowed: Sequence[float]) -> bool:
    """Whether the runs agree up to a call of backward after which one made an optimizer step and the other did not."""
    a, b = original.ranks[0].losses, other.ranks[0].losses
    parted = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x.step != y.step), None)
    if parted is None:
        return False
    differences = relative_differences(original.losses[:parted], other.losses[:parted])
    return all(difference <= limit for difference, limit in zip(differences, allowed, strict=False))


def _carried(
    original: Run, control: Run, allowed: Sequence[float], update_allowed: float
) -> tuple[list[float], float, bool]:
    """Tolerances widened to what the disturbed original shows, and whether it shows too much to compare anything."""
    if control.failure or len(control.losses) != len(original.losses):
        return list(allowed), update_allowed, False
    carried, widened, chaotic = 0.0, [], False
    for difference, limit in zip(relative_differences(original.losses, control.losses), allowed, strict=True):
        carried = max(carried, CONTROL * difference)
        chaotic = chaotic or carried > CONTROL_LIMIT
        widened.append(max(limit, min(carried, CONTROL_LIMIT)))
    deviation = control.ranks[0].deviation
    if deviation:
        update_allowed = max(update_allowed, min(CONTROL * deviation["update"], 0.3))
    return widened, update_allowed, chaotic


def numbers(values: Sequence[float]) -> str:
    """Some values for a sentence."""
    return ", ".join(map(_number, values))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.8g}"
