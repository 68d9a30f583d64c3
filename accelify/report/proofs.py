"""What `convert --assumptions` prints: how every sink of the converted scripts stands, and what the proofs rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from accelify.obligations import Obligation, Status
from accelify.obligations.causes import by_cause
from accelify.obligations.sinks import SHARES, TAKEN
from accelify.report.style import counted, styled

if TYPE_CHECKING:
    from accelify.domains.reasons import Reason
    from accelify.obligations import Validation

_MOST_LINES = 12


def proofs_text(proofs: Sequence[tuple[str, Validation]], *, colour: bool = False) -> str:
    """For each script the counts, every sink that is not proved with its chain, the assumptions, what was not read."""
    return "".join(f"{line}\n" for name, found in proofs for line in _one(name, found, colour))


def proof_json(found: Validation) -> dict[str, Any]:
    """The same for programs: counts, `not_proved`, `in_the_loop`, `assumptions`, `means_over_rounds`,
    `sums_of_shares`, `unknown_modules` and `not_read`."""
    return {
        "proved": len(found.of(Status.PROVED)),
        "in_the_loop": [_obligation(one) for one in found.of(Status.LOOP)],
        "assumed": [_obligation(one) for one in found.of(Status.ASSUMED)],
        "not_proved": [_obligation(one) for one in found.of(Status.NAMED)],
        "assumptions": [_reason(one) for one in found.assumptions],
        "means_over_rounds": [_reason(one) for one in found.means],
        "sums_of_shares": [_reason(one) for one in found.sums],
        "unknown_modules": found.unknown_modules,
        "not_read": [_reason(one) for one in found.unread],
    }


def _one(name: str, found: Validation, colour: bool) -> Iterable[str]:
    every, named = len(found.obligations), found.of(Status.NAMED)
    shown, assumed = found.of(Status.LOOP), found.of(Status.ASSUMED)
    head = f"{styled(name, 'bold', colour)}: {counted(every, 'demand')} on what others can see or ranks do together: "
    parts = [f"{len(found.of(Status.PROVED))} proved"]
    if shown:
        parts.append(f"{len(shown)} of the main process's share")
    if assumed:
        parts.append(f"{len(assumed)} assumed")
    yield head + ", ".join([*parts, f"{len(named)} not proved"])
    for group in by_cause(named):
        yield f"  {styled(_places(group), 'cyan', colour)}: {group[0].message}"
    for share in SHARES:
        if of_share := [one for one in shown if one.found.endswith(share)]:
            yield f"  some figures are shown {share}: {_places(of_share)}"
    taken = [one for one in assumed if one.found.endswith(TAKEN)]
    clocks = [one for one in assumed if one.sink != "backward" and one not in taken]
    if clocks:
        yield f"  times and names by the clock, which differ between any two runs: {_places(clocks)}"
    if taken:
        yield f"  {TAKEN}: {_places(taken)}"
    if losses := [one for one in assumed if one.sink == "backward"]:
        yield f"  losses that are taken for a mean or a sum over the rows of a batch: {_places(losses)}"
    if found.means:
        places = ", ".join(f"{one.path}:{one.line}" for one in found.means)
        yield f"  averages over batches, in which a short last batch counts as much as a full one: {places}"
    if found.sums:
        places = ", ".join(f"{one.path}:{one.line}" for one in found.sums)
        yield f"  sums over samples, which can count the last sample once for each process without one: {places}"
    if found.assumptions:
        yield "  the proofs assume:"
        for assumption in found.assumptions:
            yield f"    {assumption.text} ({assumption.path}:{assumption.line})"
    if found.unknown_modules:
        yield f"  not read, as they are neither in the project nor known: {', '.join(found.unknown_modules)}"
    for reason in found.unread:
        yield f"  not read further: {reason.text} ({reason.path}:{reason.line})"


def _places(obligations: Sequence[Obligation]) -> str:
    places = list(dict.fromkeys(f"{one.path}:{one.line}" for one in obligations))
    more = f" and {len(places) - _MOST_LINES} more" if len(places) > _MOST_LINES else ""
    return ", ".join(places[:_MOST_LINES]) + more


def _obligation(one: Obligation) -> dict[str, Any]:
    chain = one.reason.chain() if one.reason is not None else []
    return {
        "file": one.path,
        "line": one.line,
        "column": one.column,
        "sink": one.sink,
        "demand": one.demand,
        "found": one.found,
        "chain": [_reason(step) for step in chain],
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"text": reason.text, "file": reason.path, "line": reason.line}
