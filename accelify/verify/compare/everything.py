"""All that can be seen of two runs, compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from accelify.verify.compare import decisions, effects, figures, files, lifetimes, losses, samples, training
from accelify.verify.compare.effects import as_site
from accelify.verify.compare.losses import Comparison
from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

# What random numbers change; the others are the same whatever is drawn.
_OF_VALUES = ("losses", "weights", "samples", "printed", "logged", "files", "decisions")
_SHOWN = ("printed", "logged", "files", "decisions")
_LINE = re.compile(r"^(?:line \d+|cell \d+:\d+): ")
NOT_REPEATED = "two runs of the original itself differ here: it depends on the clock or on other entropy"


def compare(
    original: Run,
    other: Run,
    lines: LineMap,
    exact: bool,
    *,
    control: Run | None = None,
    again: Run | None = None,
) -> Comparison:
    """Compare a run with its reference.

    Args:
        original: the reference.
        other: the run.
        lines: which lines of the two scripts correspond to each other.
        exact: everything has to be equal to the bit, as on one process.
        control: the original with gradients disturbed as rounding would; see `losses.compare`.
        again: the original again. What it does not repeat is not compared.
    """
    comparison = losses.compare(original, other, control=control)
    comparison.checks = training.checks(original, other, comparison, lines)
    if not other.failure:
        comparison.checks += samples.compare(original, other, lines, exact)
        base = max(comparison.allowed, default=None)
        repeats = (original, again) if again is not None and not again.failure else None
        comparison.checks += figures.compare(original, other, lines, exact, repeats=repeats, base=base)
        comparison.checks += files.compare(
            original, other, lines, exact, tolerance=base,
            repeats=repeats, control=None if control is None or control.failure else control,
            excuse=figures.shares_shown(original, other, lines),
        )  # fmt: skip
        _place_files(comparison.checks, original, other, lines)
    comparison.checks += effects.compare(original, other, lines, exact)
    comparison.checks += lifetimes.compare(original, other, lines, exact)
    # Ranks that decide differently are often why a run failed.
    comparison.checks += decisions.compare(original, other, lines, exact)
    comparison.checks += _exit(other, lines)
    if again is not None and not again.failure:
        noise = compare(original, again, LineMap({}), exact=True)
        # Figures and files leave out what is not repeated number by number.
        downgrade(
            comparison, {key for key in noise.differing() if key[0] not in ("printed", "logged", "files")}
        )
        if noise.verdict is Verdict.DIFFERENT and comparison.verdict is Verdict.DIFFERENT:
            comparison.verdict, comparison.reason = Verdict.NOT_COMPARABLE, NOT_REPEATED
    return comparison


def downgrade(comparison: Comparison, keys: Iterable[tuple[str, str]], reason: str = NOT_REPEATED) -> None:
    """Call the checks of these aspects and keys not comparable where they are different."""
    known = set(keys)
    for check in comparison.checks:
        if check.verdict is Verdict.DIFFERENT and (check.aspect, check.key) in known:
            check.verdict, check.sentence = Verdict.NOT_COMPARABLE, reason


def accept(comparison: Comparison, other: Comparison) -> None:
    """Take the better verdict of two on each figure, file and decision.

    Of a run in larger batches both are right: what the original shows in batches as large, and what it shows as it is,
    such as a learning rate that follows the data, or a picture of the first batch.
    """
    better = {
        (check.aspect, check.key): check
        for check in other.checks
        if check.aspect in _SHOWN and check.verdict in (Verdict.EQUAL, Verdict.ROUNDING)
    }
    for number, check in enumerate(comparison.checks):
        if check.verdict is Verdict.DIFFERENT and (check.aspect, check.key) in better:
            comparison.checks[number] = better[check.aspect, check.key]
            comparison.accepted.add((check.aspect, check.key))


def take_over(comparison: Comparison, quiet: Comparison) -> None:
    """Take the checks of the runs without chance for what chance changes; what was done how often stays as it was."""
    reference = comparison.reference
    reason = comparison.reason or losses.explained(reference.ranks[0].reasons if reference else {})
    downgrade(comparison, {key for key in comparison.differing() if key[0] in _OF_VALUES}, reason)
    known = {(check.aspect, check.key) for check in comparison.checks if check.verdict is Verdict.DIFFERENT}
    known |= comparison.accepted
    for check in quiet.checks:
        if check.verdict is Verdict.DIFFERENT and (check.aspect, check.key) not in known:
            comparison.checks.append(
                replace(check, sentence=f"also with chance taken out of both runs: {check.sentence}")
            )


def _place_files(checks: Iterable[Check], original: Run, other: Run, lines: LineMap) -> None:
    """Give the checks of files the statements that wrote them last."""
    before, after = ({e.path: e.site for e in effects.effects_of(run) if e.site} for run in (original, other))
    for check in checks:
        if check.aspect == "files":
            check.original = before.get(check.key)
            check.line = after.get(check.key) or lines.converted(check.original)


def _exit(run: Run, lines: LineMap) -> list[Check]:
    """How the run ended; of ranks that wait for each other at different places, the place of each."""
    if not run.failure:
        return [Check("exit", "exit", Verdict.EQUAL)]
    errors = {
        number: rank.error for number, rank in enumerate(run.ranks) if rank.error and rank.error["stack"]
    }
    stacks = {number: [as_site(site) for site in error["stack"]] for number, error in errors.items()}
    order = sorted(errors, key=lambda number: errors[number]["time"])
    places = _parted([stacks[number] for number in order]) or [stacks[number][-1] for number in order[:1]]
    if not places:
        return [Check("exit", "exit", Verdict.FAILED, run.failure)]
    # The place is named with the check.
    failure = _LINE.sub("", run.failure)
    checks = [Check("exit", "exit", Verdict.FAILED, failure, places[0], lines.original(places[0]))]
    for number, place in zip(order[1:], places[1:], strict=False):
        if place is not None and place != places[0]:
            sentence = f"rank {number} is here meanwhile"
            checks.append(
                Check(
                    "exit", f"exit of rank {number}", Verdict.FAILED, sentence, place, lines.original(place)
                )
            )
    return checks


def _parted(stacks: list[list[Site | None]]) -> list[Site | None]:
    """Where each rank was in the innermost function that all were in, if these are different statements.

    Args:
        stacks: the user's lines that each rank that failed was in, outermost first.
    """
    for level in zip(*stacks, strict=False):
        if len({site and site[0] for site in level}) > 1:
            break
        if len(set(level)) > 1:
            return list(level)
    return []
