"""Learning rates by the data: a run in larger batches may follow the original's schedule at each sample it has seen."""

from __future__ import annotations

from typing import Any

from accelify.verify.compare.losses import first_other_rates, numbers, same_rates
from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

Rates = tuple[float, ...]
Schedule = tuple[tuple[Site, list[Any]], ...]


def rates_by_data(original: Run, run: Run, lines: LineMap, count: int) -> list[Rates] | None:
    """For each optimizer step of a run, the rates that the original has once it has seen as much data before it.

    Args:
        original: the original with batches of its size, for as many samples as the run.
        run: a run on several processes, each of which takes batches as large as the original's.
        lines: of the converted script.
        count: how many of the original's batches are one round of all processes.

    Returns:
        The rates; None where the two cannot be compared step by step, such as steps without a batch of a loader.
    """
    first = _first_steps(original)
    expected = []
    for place in _batches(run, lines):
        if place is None:
            return None
        step = first.get((*place[:-1], place[-1] * count))
        if step is None:
            return None
        expected.append(original.rates[step])
    return expected


def settings(expected: list[Rates] | None, run: Run, lines: LineMap) -> Schedule:
    """What the schedulers of a run set at each place in the original; nothing where its rates are not as expected."""
    if expected is None or first_other_rates(expected, run.rates) is not None:
        return ()
    found: dict[Site, list[Any]] = {}
    for event in run.ranks[0].events.get("schedule", ()):
        site = lines.original(tuple(event["site"]) if event["site"] else None)
        if site is not None:
            found.setdefault(site, []).append(event["settings"])
    return tuple(found.items())


def counts_rounds(original: Run, run: Run) -> bool:
    """Whether a run of fewer steps has the original's rates by the number of the step: it ends amid the schedule.

    Where both make as many steps, as where nothing but a number of steps ends training, this is right.
    """
    finished = all(one.ranks[0].ended == "finished" for one in (original, run))
    shorter = len(run.rates) < len(original.rates)
    return finished and shorter and all(map(same_rates, run.rates, original.rates))


def name_rates(checks: list[Check], expected: list[Rates] | None, run: Run, lines: LineMap) -> None:
    """Make rates different that are not the original's after as many samples, and name both."""
    number = None if expected is None else first_other_rates(expected, run.rates)
    check = next((check for check in checks if check.aspect == "rates"), None)
    # What the original itself does not repeat stays not comparable.
    if expected is None or number is None or check is None or check.verdict is Verdict.NOT_COMPARABLE:
        return
    check.verdict, check.line = Verdict.DIFFERENT, run.ranks[0].steps[number].site
    check.original = lines.original(check.line)
    check.sentence = (
        f"the learning rate of step {number + 1} is another one: {numbers(expected[number])} in the original after as "
        f"many samples, {numbers(run.rates[number])} in this run"
    )


_Place = tuple[int, str, int, int, int, int]


def _first_steps(run: Run) -> dict[_Place, int]:
    """For each batch the first step of each optimizer after it was taken."""
    events = run.ranks[0].events
    steps = list(enumerate(events.get("step", ())))
    found: dict[_Place, int] = {}
    for optimizer in {event["optimizer"] for _, event in steps}:
        own = iter([(number, event["n"]) for number, event in steps if event["optimizer"] == optimizer])
        number, at = next(own)
        for event in events.get("batch", ()):
            while at < event["n"]:
                number, at = next(own, (-1, float("inf")))
            if number >= 0 and (place := _place(optimizer, event, None)) is not None:
                found.setdefault(place, number)
    return found


def _batches(run: Run, lines: LineMap | None) -> list[_Place | None]:
    """For each optimizer step of rank 0 the first batch since that optimizer's last step, or the last before it.

    A step that several batches add up to has the rate of the first of them.
    """
    events = run.ranks[0].events
    taken = events.get("batch", ())
    begun: dict[int, int] = {}
    found: list[_Place | None] = []
    position = 0
    for step in events.get("step", ()):
        while position < len(taken) and taken[position]["n"] < step["n"]:
            position += 1
        first = min(begun.get(step["optimizer"], 0), position - 1)
        begun[step["optimizer"]] = position
        found.append(_place(step["optimizer"], taken[first], lines) if first >= 0 else None)
    return found


def _place(optimizer: int, event: dict[str, Any], lines: LineMap | None) -> _Place | None:
    file, line, number = event["key"]
    site: Site | None = (file, line) if lines is None else lines.original((file, line))
    return None if site is None else (optimizer, *site, number, event["number"], event["position"])
