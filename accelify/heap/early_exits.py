"""Ways that leave a round of a loop or a function early, and what stands there on them where they come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accelify.heap.pieces import Written
from accelify.heap.values import Guard

if TYPE_CHECKING:
    from accelify.heap.statements import Statements
    from accelify.heap.store import Store


@dataclass(frozen=True)
class Way:
    """A way that leaves early.

    `written` is what it had written, `guard` what ranks that may go it stand under, `stays` what the others write after
    it has left, as it is on this way.
    """

    written: Written
    guard: Guard | None
    stays: Written = field(default_factory=dict)


def counted(statements: Statements) -> list[int]:
    """How many ways have left this round, and this function, so far."""
    return [len(ways) for ways in _leaving(statements)]


def merged(one: dict[str, Guard | None], other: dict[str, Guard | None]) -> dict[str, Guard | None]:
    """The ways by which one part of a block or the other may be left, each with what parts the ranks there in any."""
    return {kind: _parting(one.get(kind), other.get(kind)) for kind in {**one, **other}}


def _parting(one: Guard | None, other: Guard | None) -> Guard | None:
    """Of what stands around two ways, that which parts the ranks."""
    if one is None or (other is not None and other.parts_ranks and not one.parts_ranks):
        return other
    return one


def begin_rest(statements: Statements, before: list[int]) -> list[Way]:
    """Begin what only those go through that have not left.

    Args:
        statements: those of the run.
        before: how many ways had left before the statement in which some did.

    Returns:
        The ways that left in it.
    """
    found: list[Way] = []
    for ways, count in zip(_leaving(statements), before, strict=True):
        # The memory of a statement has the old ones.
        ways[count:] = [Way(one.written, one.guard, dict(one.stays)) for one in ways[count:]]
        found += ways[count:]
    statements.run.store.begin()
    return found


def end_rest(store: Store, ways: list[Way]) -> None:
    """End what was begun after some ways had left: on them, what is written in it is what it was before."""
    written = store.undo()
    stay(store, ways, written)
    store.write_all(written)


def stay(store: Store, ways: list[Way], written: Written) -> None:
    """Note what is on some ways that left, of what the others have written, before that is written."""
    for owner, name in written if ways else ():
        if store.pieces:
            store.note(owner, name)
        for way in ways:
            if (owner, name) not in way.written:
                way.stays.setdefault((owner, name), owner.fields.get(name))


def take_back(store: Store, ways: list[Way]) -> None:
    """Put together what stands there on the ways that left early with what stands there now."""
    for way in ways:
        now = {key: key[0].fields.get(key[1]) for key in way.stays}
        store.write_all(way.stays)
        store.write_all(store.merged(now, {}, way.guard))
        store.write_all(store.merged({}, way.written, way.guard))


def _leaving(statements: Statements) -> list[list[Way]]:
    rounds, frames = statements.rounds, statements.frames
    return [*rounds[-1:], *([frames[-1].left] if frames else [])]
