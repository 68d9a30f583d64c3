"""Learning rates by the data: a run in larger batches may follow the original's schedule at each sample it has seen."""

from __future__ import annotations

from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

Rates = tuple[float, ...]


def rates_by_data(original: Run, run: Run, lines: LineMap, count: int) -> list[Rates] | None:
    """For each optimizer step of a run, the rates that the original has once it has seen as much data before it.

    Args:
        original: the original with batches of its size.
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
        file, line, number, number_of_pass, position = place
        step = first.get((file, line, number, number_of_pass, position * count))
        if step is None:
            return None
        expected.append(original.rates[step])
    return expected


_Place = tuple[str, int, int, int, int]


def _first_steps(run: Run) -> dict[_Place, int]:
    """For each batch the first optimizer step after it was taken."""
    found: dict[_Place, int] = {}
    for step, place in enumerate(_batches(run, None)):
        if place is not None:
            found.setdefault(place, step)
    return found


def _batches(run: Run, lines: LineMap | None) -> list[_Place | None]:
    """For each optimizer step of rank 0 the last batch before it: loader, pass and position."""
    events = run.ranks[0].events
    taken = [(event["n"], event) for event in events.get("batch", ())]
    found: list[_Place | None] = []
    position, last = 0, None
    for step in events.get("step", ()):
        while position < len(taken) and taken[position][0] < step["n"]:
            last = taken[position][1]
            position += 1
        found.append(_place(last, lines) if last is not None else None)
    return found


def _place(event: dict[str, object], lines: LineMap | None) -> _Place | None:
    key = event["key"]
    assert isinstance(key, list)
    site = (key[0], key[1])
    mapped = site if lines is None else lines.original(site)
    if mapped is None:
        return None
    return (*mapped, key[2], int(str(event["number"])), int(str(event["position"])))
