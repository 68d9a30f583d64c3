"""Training as checks: one for the losses, the steps, the learning rates, the weights and the precision of two runs."""

from __future__ import annotations

from accelify.verify.compare.losses import (
    Comparison,
    counts,
    first_other_rates,
    rates,
    relative_differences,
    tolerances,
)
from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.events import Loss, Step
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run


def checks(original: Run, other: Run, comparison: Comparison, lines: LineMap) -> list[Check]:
    """The checks of training from a comparison of two runs' numbers; none for a run that failed."""
    if comparison.verdict is Verdict.FAILED:
        return []
    return [
        _steps(original, other, lines),
        _rates(original, other, lines),
        _losses(original, other, comparison, lines),
        _weights(other, comparison, lines),
        *_precision(original, other, lines),
        *_scaling(original, other, lines),
    ]


def _steps(original: Run, other: Run, lines: LineMap) -> Check:
    different = _ranks_differ(other) or counts(original, other)
    if not different:
        return Check("steps", "steps", Verdict.EQUAL)
    if other.repeated and len(other.losses) < len(original.losses):
        different += (
            "; and every process does the same work, so nothing makes up for the steps that are missing"
        )
    last = other.ranks[0].losses[-1].site if other.ranks[0].losses else None
    return Check("steps", "steps", Verdict.DIFFERENT, different, last, lines.original(last))


def _ranks_differ(run: Run) -> str:
    """What the ranks disagree on in their numbers of backward calls and steps."""
    if len({len(rank.losses) for rank in run.ranks}) > 1 or len({len(rank.steps) for rank in run.ranks}) > 1:
        return run.uneven or ""
    return ""


def _rates(original: Run, other: Run, lines: LineMap) -> Check:
    if not original.rates:
        return Check("rates", "rates", Verdict.NOT_REACHED)
    different = rates(original, other)
    if not different:
        return Check("rates", "rates", Verdict.EQUAL)
    site = _site_of(other.ranks[0].steps, first_other_rates(original.rates, other.rates) or 0)
    return Check("rates", "rates", Verdict.DIFFERENT, different, site, lines.original(site))


def _losses(original: Run, other: Run, comparison: Comparison, lines: LineMap) -> Check:
    site = _site_of(other.ranks[0].losses, (comparison.first.number if comparison.first else 1) - 1)
    place = (site, lines.original(site))
    differences = relative_differences(original.losses, other.losses)
    if not any(differences):
        return Check("losses", "losses", Verdict.EQUAL)
    if comparison.verdict is Verdict.NOT_COMPARABLE:
        return Check("losses", "losses", Verdict.NOT_COMPARABLE, comparison.reason, *place)
    allowed = comparison.allowed or tolerances(original)
    beyond = [n for n, (d, limit) in enumerate(zip(differences, allowed, strict=False)) if d > limit]
    if not beyond:
        return Check("losses", "losses", Verdict.ROUNDING)
    sentence = comparison.first.sentence() if comparison.first else comparison.reason
    return Check("losses", "losses", Verdict.DIFFERENT, sentence, *place)


def _weights(other: Run, comparison: Comparison, lines: LineMap) -> Check:
    steps = other.ranks[0].steps
    site = steps[-1].site if steps else None
    place = (site, lines.original(site))
    if other.parted:
        return Check(
            "weights", "weights", Verdict.DIFFERENT, "the processes end with different weights", *place
        )
    if comparison.same_weights:
        return Check("weights", "weights", Verdict.EQUAL)
    if comparison.verdict is Verdict.NOT_COMPARABLE:
        return Check("weights", "weights", Verdict.NOT_COMPARABLE, comparison.reason, *place)
    if comparison.verdict is Verdict.ROUNDING:
        return Check("weights", "weights", Verdict.ROUNDING)
    apart = comparison.update
    sentence = (
        "the weights at the end differ"
        if apart is None
        else f"the weights end apart from the original's by {apart:.1e} of how far training moved them"
    )
    if apart is not None and "size apart" in comparison.reason:
        sentence = comparison.reason
    return Check("weights", "weights", Verdict.DIFFERENT, sentence, *place)


def _precision(original: Run, other: Run, lines: LineMap) -> list[Check]:
    """A run in another precision is different, whatever its numbers."""
    before, after = original.ranks[0].autocast, other.ranks[0].autocast
    types = [{loss.dtype for loss in run.ranks[0].losses} for run in (original, other)]
    if before != after:
        words = [f"under autocast to {one}" if one else "without autocast" for one in (after, before)]
        sentence = f"runs {words[0]}, the original {words[1]}"
    elif types[0] != types[1] and types[0] and types[1]:
        sentence = f"losses are {', '.join(sorted(types[1]))}, in the original {', '.join(sorted(types[0]))}"
    else:
        return []
    place = _first_place("autocast", original, other, lines)
    return [Check("losses", "precision", Verdict.DIFFERENT, sentence, *place)]


def _scaling(original: Run, other: Run, lines: LineMap) -> list[Check]:
    """A run whose losses are scaled against underflow is different from one whose losses are not."""
    before, after = ("scaling" in run.ranks[0].events for run in (original, other))
    if before == after or (before and not _is_half(original)):
        # In bfloat16, whose exponents are float32's, a factor changes nothing that is divided by it again.
        return []
    sentence = (
        "its losses are scaled by a GradScaler, those of the original are not"
        if after
        else "its losses are not scaled, those of the original are, by a GradScaler: float16 loses small gradients"
    )
    place = _first_place("scaling", original, other, lines)
    return [Check("losses", "scaling", Verdict.DIFFERENT, sentence, *place)]


def _is_half(run: Run) -> bool:
    """Whether anything is computed in float16."""
    rank = run.ranks[0]
    return "float16" in {rank.autocast, *(loss.dtype for loss in rank.losses)}


def _first_place(kind: str, original: Run, other: Run, lines: LineMap) -> tuple[Site | None, Site | None]:
    """Where the first event of a kind was, in the run and in the original; it may be in one of the two only."""
    theirs, own = (
        next((tuple(e["site"]) for e in run.ranks[0].events.get(kind, ()) if e["site"]), None)
        for run in (original, other)
    )
    return own or lines.converted(theirs), theirs or lines.original(own)


def _site_of(events: list[Loss] | list[Step], number: int) -> Site | None:
    if not events:
        return None
    return events[min(number, len(events) - 1)].site
