"""Pieces of a script: a call, a statement in a loop. One that reads what it read before is not gone through again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from accelify.heap.values import Bound, Container, Instance, Key, Library, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.run import Event

Written = dict[Key, Value | None]
Read = dict[Key, tuple[Value | None, int]]
Steady = list[tuple[Key, Value | None]]
Others = list[tuple[Key, Value | None, int]]
_NO_CALL = 1 << 30
# From how many slots on they are shared by the pieces that read them all, and how many such sets a piece has.
_LARGE, _MOST_PARTS = 64, 8
# The slot that is written when an object is made at its place of the script.
MADE = "#made"


class Piece:
    """What a piece reads and writes, and what else it does."""

    __slots__ = (
        "alone",
        "around",
        "before",
        "born",
        "depth",
        "events",
        "first_call",
        "first_event",
        "guards",
        "joins",
        "level",
        "loops",
        "made",
        "meets",
        "parts",
        "placed",
        "reads",
        "result",
        "round",
        "seen",
        "shared",
        "sites",
        "split",
        "start",
        "summary",
        "taken",
        "trains",
        "valid",
        "within",
        "writes",
    )

    def __init__(self, guards: int, loops: int, depth: int, first_event: int = 0) -> None:
        # Where it began: the level of the store, the newest scope, and the rounds of loops around.
        self.level = self.made = self.start = 0
        # Up to which write it is known that what it reads itself is as it read it, but for what adds up.
        self.valid = 0
        self.round = self.shared = -1
        # What stood in each slot that it read before it wrote there, and whether that was of the round; what it only
        # joined with what it wrote; the names in objects that it read as a whole.
        self.reads: Read = {}
        self.joins: Read = {}
        self.seen: dict[Ref, frozenset[str]] = {}
        # Pieces that were done again in it before anything was written that they read: that is not in its own `reads`,
        # but for what adds up. False where it is, as something had been written.
        self.taken: dict[Piece, bool] = {}
        self.summary: Summary | None = None
        self.split: tuple[Steady, Others] | None = None
        self.writes: Written = {}
        # Containers that it made in passing, with what it left in them; objects and the loops that they are made in.
        self.born: list[tuple[Container, dict[str, Value]]] = []
        self.placed: dict[Container | Instance, tuple[int, ...]] = {}
        # What it met, under how many guards and in how many loops it began itself.
        self.events: list[Event] = []
        self.guards = guards
        self.loops = loops
        # In how many calls it began.
        self.depth = depth
        self.first_event = first_event
        # Whether what it gives depends on the guards and loops around, and those; the shared ones among the loops.
        self.around = False
        self.before: Any = None
        self.within: tuple[int, ...] = ()
        # Whether ranks meet in it, whether it shares out a batch; which of a backward and a step stand right in the
        # loop around.
        self.meets = self.parts = False
        self.trains: set[str] = set()
        # The first of the calls around on which it depends, by the objects that it makes; those calls.
        self.first_call = _NO_CALL
        self.sites: tuple[object, ...] = ()
        # Whether what it gives depends on nothing else.
        self.alone = True
        self.result: Any = None

    def take(self, inner: Piece, depth: int) -> None:
        """Take over what a piece in it did that ends, or that is done again within `depth` calls."""
        self.born += inner.born
        self.placed.update(inner.placed)
        self.around = self.around or inner.around
        self.first_call = min(self.first_call, inner.first_call + depth - inner.depth)

    def inner(self) -> list[Piece]:
        """The pieces that were done again in it, of which it does not note what they read."""
        return [piece for piece, is_apart in self.taken.items() if is_apart]

    def by_rounds(self) -> tuple[Steady, Others]:
        """What it read itself, but for what adds up or is only joined; and that, with the round in which it was written
        as `reads` has it."""
        if self.split is None:
            reads, joins = self.reads.items(), self.joins.items()
            adding = [(key, *read) for key, read in reads if read[1] >= 0]
            steady = [(key, value) for key, (value, since) in reads if since < 0]
            self.split = steady, adding + [(key, *read) for key, read in joins]
        return self.split

    def all_reads(self) -> Summary:
        """What it reads itself and in the pieces that were done again in it."""
        if self.summary is None:
            self.summary = Summary(self)
        return self.summary

    def reads_any(self, keys: Iterable[Key]) -> bool:
        """Whether it read what stands in one of some slots."""
        parts = {part for piece in self.inner() for part in piece.all_reads().parts}
        return any(
            key in self.reads or key[0] in self.seen or any(key in part.slots for part in parts)
            for key in keys
        )


class Slots:
    """Slots that pieces read.

    Attributes:
        slots: all of them.
        written: those, and the slots that say when their objects of no scope were made.
        newest: the newest object among theirs.
        is_large: whether there are so many that other pieces share them.
        untouched, upto: from which write on none was to them, as far as the writes up to another one.
    """

    __slots__ = ("is_large", "newest", "slots", "untouched", "upto", "written")

    def __init__(self, slots: set[Key]) -> None:
        self.slots = slots
        self.is_large = len(slots) >= _LARGE
        owners = {owner for owner, _ in slots}
        self.newest = max([owner.serial for owner in owners], default=0)
        self.written = slots | {(owner, MADE) for owner in owners if not owner.serial}
        self.untouched = self.upto = 0


class Summary:
    """What a piece that is done again reads.

    Attributes:
        parts: all slots. Many pieces have those of large ones in common.
        newest: the newest object among theirs.
        adding, joins: the slots of what adds up, for which it matters whether it was written in this round, and of what
            is only joined.
        valid: up to which write it is known that this is as it read it, in those that were done again in it, too.
    """

    def __init__(self, piece: Piece) -> None:
        slots: set[Key] = {*piece.reads, *piece.joins}
        self.adding = {key for key, (_, since) in piece.reads.items() if since >= 0}
        self.joins = set(piece.joins)
        self.valid = piece.start
        parts: dict[Slots, None] = {}
        for inner in piece.inner():
            summary = inner.all_reads()
            parts.update(dict.fromkeys(summary.parts))
            self.adding |= summary.adding
            self.joins |= summary.joins
        by_size = sorted(parts, key=lambda part: -len(part.slots))
        large = [part for part in by_size[:_MOST_PARTS] if part.is_large]
        for part in by_size[len(large) :]:
            slots |= part.slots
        self.parts: list[Slots] = [Slots(slots), *large]
        self.newest = max(part.newest for part in self.parts)


def is_alike(one: Value | None, other: Value | None) -> bool:
    """Whether two values are the same in all but the reasons for it."""
    if one is None or other is None:
        return one is other
    return (
        (one.place is other.place or one.place == other.place)
        and one.type == other.type
        and one.optional == other.optional
        and one.text == other.text
        and one.where == other.where
        and (one.const is other.const or (type(one.const) is type(other.const) and one.const == other.const))
        and (one.refs == other.refs or _are_alike(one.refs, other.refs))
        and one.token == other.token
        and one.delta == other.delta
    )


def _are_alike(one: tuple[Ref, ...], other: tuple[Ref, ...]) -> bool:
    return len(one) == len(other) and all(
        left is right or (type(left) is type(right) and _is_alike_ref(left, right))
        for left, right in zip(one, other, strict=True)
    )


def _is_alike_ref(one: Ref, other: Ref) -> bool:
    if isinstance(one, Library) and isinstance(other, Library):
        return one.name == other.name
    if isinstance(one, Bound) and isinstance(other, Bound):
        return one.method == other.method and is_alike(one.receiver, other.receiver)
    return False
