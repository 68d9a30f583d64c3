"""What the main process does on one way of a condition, and the others on the other one.

if rank == 0:
    for x in tqdm(loader):
        model(x).mean().backward()
else:
    for x in loader:
        model(x).mean().backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.heap.run import Event
from accelify.heap.values import Guard

_MEETING = frozenset({"backward", "collective", "forward", "step"})
_WAYS = ("main", "others")


def is_on_both_ways(event: Event, events: Sequence[Event]) -> bool:
    """Whether all ranks come to a meeting, the main process on one way and the others on another: in a function that
    both call, or as both ways meet for the same, in loops through the same loaders.

    Args:
        event: the meeting.
        events: all of the script.
    """
    way = _way_of(event)
    if way is None:
        return False
    ways = {kind: _calls_around(event, events, way, kind) for kind in _WAYS}
    if way.kind in _WAYS and len(ways["main"]) == len(ways["others"]):
        return True  # each calls what the other calls
    if event.kind not in _MEETING or way.kind not in _WAYS:
        return False
    one, other = (list(_meetings(events, way, kind)) for kind in _WAYS)
    # Of several conditions by one flag, each is by itself.
    around = ({id(part) for part in ast.walk(choice)} for choice in _choices_around(event))
    both = [
        (one, other),
        *(
            ([e for e in one if id(e.node) in part], [e for e in other if id(e.node) in part])
            for part in around
        ),
    ]
    return any(map(_are_alike, both))


def _calls_around(event: Event, events: Sequence[Event], way: Guard, kind: str) -> set[object]:
    """The calls by which those come to a meeting who go one way of a condition."""
    return {
        (other.via, tuple(loop.number for loop in other.loops))
        for other in events
        if other.node is event.node
        and other.kind == event.kind
        and (of := _way_of(other)) is not None
        and of.kind == kind
        and _place(of) == _place(way)
    }


def _are_alike(ways: tuple[Sequence[Event], Sequence[Event]]) -> bool:
    """Whether two ways meet for the same, in the same order."""
    first, second = ([what(each) for each in part] for part in ways)
    return first == second and not are_crossed(*ways)


def _choices_around(event: Event) -> list[ast.If]:
    """The conditions with two ways that an event stands on one of, in its function or module."""
    tree = event.module.tree or ast.Module([], [])
    return [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.If) and one.orelse and event.node in ast.walk(one)
    ]


def are_met(event: Event, own: Sequence[Event], others: Sequence[Event]) -> bool:
    """Whether the ranks of the other way meet for the same as an event, at its place from the first or the last.

    Args:
        event: of the one way.
        own: the meetings of its way.
        others: those of the other way.
    """
    place = next((number for number, one in enumerate(own) if one is event), len(own))
    mine, theirs = list(map(what, own)), list(map(what, others))
    after = len(own) - place - 1
    return place < len(own) and (
        mine[: place + 1] == theirs[: place + 1]
        or (after < len(theirs) and mine[place:] == theirs[len(theirs) - after - 1 :])
    )


def are_crossed(one: Sequence[Event], other: Sequence[Event]) -> bool:
    """Whether two ways meet for the same values, in another order.

    Args:
        one: the meetings of the one way.
        other: those of the other one.
    """
    texts = [[called_with(event) for event in part] for part in (one, other)]
    return texts[0] != texts[1] and sorted(texts[0]) == sorted(texts[1])


def called_with(event: Event) -> str:
    """A meeting with what it is about, as the script has it: `all_reduce(loss)`."""
    about = event.node.args[:1] if isinstance(event.node, ast.Call) else []
    return f"{event.name}({''.join(map(ast.unparse, about))})"


def what(event: Event) -> tuple[object, ...]:
    """What is met at an event, with the loops around it."""
    return event.kind, event.name, *[loop.loaders or loop.number for loop in event.loops]


def _meetings(events: Sequence[Event], way: Guard, kind: str) -> Iterator[Event]:
    """What is met on one of the ways."""
    for event in events:
        guard = _way_of(event) if event.kind in _MEETING else None
        if guard is not None and guard.kind == kind and _place(guard) == _place(way):
            yield event


def _way_of(event: Event) -> Guard | None:
    """What keeps some ranks from an event, where that is one condition only."""
    found = [guard for guard in event.guards if guard.parts_ranks]
    return found[0] if len(found) == 1 else None


def _place(guard: Guard) -> tuple[str, int]:
    return guard.why.path, guard.why.line
