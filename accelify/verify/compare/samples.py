"""Samples: what each step's batch holds over all ranks, against the original's batch; none twice and none missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

WHOLE = (
    "every process trains on all samples, so that more processes make it no faster; prepare the loader, or give each "
    "process a part of the batch"
)
_Pass = tuple[str, int, int, int]
"""File and line where a loader is made, the how manyth made there, and the how manyth pass over it."""


@dataclass
class _Drawn:
    """One pass over a loader: by position, the batch of each rank that took one there; whether it reached its end."""

    batches: dict[int, dict[int, Any]] = field(default_factory=dict)
    ended: bool = False


def compare(original: Run, other: Run, lines: LineMap, exact: bool) -> list[Check]:
    """One check for each place where loaders are made, and one for work that the processes do not divide."""
    before, after = _drawn(original, None), _drawn(other, lines)
    found: dict[Site, list[Check]] = {}
    seen = {key[:3] for key in after}
    for key in before:
        site = key[:2]
        place = (lines.converted(site), site)
        label = f"{site[0]}:{site[1]}"
        if key[:3] not in seen:
            # A runtime that makes its own loaders is not seen taking their batches.
            found.setdefault(site, []).append(Check("samples", label, Verdict.NOT_REACHED, "", *place))
            continue
        if key not in after:
            if before[key].batches:
                sentence = f"pass {key[3] + 1} over the loader was not made"
                found.setdefault(site, []).append(
                    Check("samples", label, Verdict.DIFFERENT, sentence, *place)
                )
            continue
        sentence = _difference(before[key], after[key], other.processes, exact)
        verdict = Verdict.DIFFERENT if sentence else Verdict.EQUAL
        if sentence:
            sentence = f"pass {key[3] + 1} over the loader: {sentence}"
        found.setdefault(site, []).append(Check("samples", label, verdict, sentence, *place))
    result = [
        next((check for check in checks if check.verdict is Verdict.DIFFERENT), checks[0])
        for checks in found.values()
    ]
    if other.repeated and not other.shared_out:
        result.append(Check("samples", "divided", Verdict.NOT_DIVIDED, WHOLE))
    return result


def _drawn(run: Run, lines: LineMap | None) -> dict[_Pass, _Drawn]:
    found: dict[_Pass, _Drawn] = {}
    for rank, record in enumerate(run.ranks):
        for event in _events(record.events):
            key = _key(event, lines)
            if key is None:
                continue
            drawn = found.setdefault(key, _Drawn())
            if "position" in event:
                drawn.batches.setdefault(event["position"], {})[rank] = event
            else:
                drawn.ended = True
    return found


def _events(events: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    yield from events.get("batch", ())
    yield from events.get("pass_ended", ())


def _key(event: dict[str, Any], lines: LineMap | None) -> _Pass | None:
    file, line, number = event["key"]
    site: Site | None = (file, line)
    if lines is not None:
        site = lines.original(site)
    return None if site is None else (*site, number, event["number"])


def _difference(before: _Drawn, after: _Drawn, processes: int, exact: bool) -> str:
    """The first batch that holds other samples, as a sentence; empty where there is none."""
    for position in sorted(before.batches):
        reference = before.batches[position][0]
        ranks = after.batches.get(position)
        if ranks is None:
            if after.ended:
                count, have = len(before.batches), len(after.batches)
                return f"{have} batches, in the original {count}"
            # The run was cut short after enough steps.
            return ""
        if not all(rank in ranks for rank in range(processes)) and not after.ended:
            return ""
        if sentence := _batch(reference, ranks, processes, exact):
            return f"batch {position + 1}: {sentence}"
    if before.ended and len(after.batches) > len(before.batches):
        return f"{len(after.batches)} batches, in the original {len(before.batches)}"
    return ""


def _batch(reference: dict[str, Any], ranks: dict[int, dict[str, Any]], processes: int, exact: bool) -> str:
    wanted, shares = reference["indices"], [ranks[rank]["indices"] for rank in sorted(ranks)]
    if wanted is None or any(share is None for share in shares):
        return ""
    if exact:
        return "" if shares[0] == wanted else "other samples, or in another order, than the original's batch"
    if all(Counter(share) == Counter(wanted) for share in shares):
        # Every process iterates over all of the data: it is not sharded, and nothing is lost by that.
        return ""
    union = Counter(index for share in _without_fillers(shares) for index in share)
    missing, twice = Counter(wanted) - union, union - Counter(wanted)
    if missing:
        count, one = sum(missing.values()), next(iter(missing))
        return f"{count} of the original's {len(wanted)} samples are missing, such as number {one}"
    if twice:
        count, one = sum(twice.values()), next(iter(twice))
        return (
            f"{count} samples are not in the original's batch, or are there once only, such as number {one}"
        )
    return ""


def _without_fillers(shares: list[list[int]]) -> list[list[int]]:
    """Shares without those that only repeat what another rank has last.

    A rank that is left without samples gets such a share, which weighs nothing.
    """
    retained: list[list[int]] = []
    seen: Counter[int] = Counter()
    for share in shares:
        if retained and share and all(seen[index] for index in share) and share[-1] == retained[-1][-1]:
            continue
        retained.append(share)
        seen.update(share)
    return retained
