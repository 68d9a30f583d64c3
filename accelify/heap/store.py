"""The store: all writes of the abstract run, in a journal that can be undone and put together at a join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from accelify.domains.placement import MAIN, ROUND, Kind, Placement, joined, own
from accelify.domains.reasons import Reason
from accelify.heap.values import (
    UNSET,
    Container,
    Guard,
    Key,
    Library,
    Ref,
    Scope,
    Value,
    is_zero,
    newest_scope,
)

Written = dict[Key, Value | None]


class Store:
    """Reads and writes of variables, fields and elements, all as (owner, name)."""

    def __init__(self) -> None:
        # Each level has what stood in a slot before the first write to it on that level.
        self._journals: list[Written] = []
        # Grows with every write that a later call of a function could see.
        self.clock = 0
        # For each call that is being gone through: the objects that it has read.
        self.reads: list[set[Ref]] = []
        # The newest scope when each level began.
        self._made: list[int] = []
        # The levels at which the rounds of loops began.
        self._rounds: list[int] = []
        self._shared: list[int] = []

    def get(self, owner: Ref, name: str) -> Value | None:
        """What stands there, None where nothing was written."""
        return owner.fields.get(name)

    def set(self, owner: Ref, name: str, value: Value | None) -> None:
        """Write, or with None take away."""
        if isinstance(owner, Scope):
            if self._journals and owner.serial <= self._made[-1]:
                self._journals[-1].setdefault((owner, name), owner.fields.get(name))
        else:
            before = owner.fields.get(name)
            if self._journals:
                self._journals[-1].setdefault((owner, name), before)
            if before != value:
                self._seen(owner, value)
        if value is None:
            owner.fields.pop(name, None)
        else:
            owner.fields[name] = value

    def _seen(self, owner: Ref, value: Value | None) -> None:
        """A write to an object: others see it, but for one to a container that only the call knows which made it."""
        if _is_seen(owner):
            self.clock += 1
            owner.version = self.clock
            for ref in value.refs if value is not None else ():
                if isinstance(ref, Container):
                    ref.escaped = True

    def note(self, owner: Ref, value: Value | None) -> None:
        """A read: of the object, and of the containers that are found there."""
        if not self.reads or isinstance(owner, Scope):
            return
        reads = self.reads[-1]
        reads.add(owner)
        for ref in value.refs if value is not None else ():
            if isinstance(ref, Container) and ref not in reads:
                for name, inner in ref.fields.items():
                    if name.startswith("["):
                        self.note(ref, inner)
                reads.add(ref)

    def begin(self, of_round: bool = False, shared: bool = False) -> None:
        """From here on writes can be undone; `of_round` says that a round of a loop begins, `shared` that the loop's
        rounds are shared out."""
        if of_round:
            self._rounds.append(len(self._journals))
            if shared:
                self._shared.append(len(self._journals))
        self._journals.append({})
        self._made.append(newest_scope())

    def touched_in_round(self, owner: Ref, name: str) -> bool:
        """Whether something was written there since the round of the innermost loop began."""
        return not self._rounds or self._touched_since(self._rounds[-1], owner, name)

    def is_of_shared_round(self, owner: Ref, name: str) -> bool:
        """Whether what stands there was written in this round of the innermost loop whose rounds are shared out."""
        return bool(self._shared) and self._touched_since(self._shared[-1], owner, name)

    def _touched_since(self, first: int, owner: Ref, name: str) -> bool:
        if isinstance(owner, Scope) and owner.serial > self._made[first]:
            return True
        key = (owner, name)
        return any(key in journal for journal in self._journals[first:])

    def undo(self) -> Written:
        """Take back all writes since the last `begin`, and give what they had left."""
        journal = self._journals.pop()
        self._made.pop()
        for owner, _ in journal:
            if not isinstance(owner, Scope) and _is_seen(owner):
                self.clock += 1
                owner.version = self.clock
        if self._rounds and self._rounds[-1] == len(self._journals):
            self._rounds.pop()
            if self._shared and self._shared[-1] == len(self._journals):
                self._shared.pop()
        left = {key: key[0].fields.get(key[1]) for key in journal}
        for (owner, name), value in journal.items():
            if value is None:
                owner.fields.pop(name, None)
            else:
                owner.fields[name] = value
        return left

    def write_all(self, written: Written) -> None:
        """Write what another way through the script had left."""
        for (owner, name), value in written.items():
            self.set(owner, name, value)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Write for good, whatever way through the script is gone now: what a module does when it is imported."""
        outer = self._journals, self._rounds, self._shared, self._made
        self._journals, self._rounds, self._shared, self._made = [], [], [], []
        try:
            yield
        finally:
            self._journals, self._rounds, self._shared, self._made = outer

    def merged(self, one: Written, other: Written, guard: Guard | None) -> Written:
        """What two ways from here leave together; `guard` is what ranks that may go different ones stand under."""
        together: Written = {}
        for key in dict.fromkeys([*one, *other]):
            now = key[0].fields.get(key[1])
            under = guard
            if guard is not None and guard.place.kind is Kind.ROUND and (key not in one or key not in other):
                if not self.is_of_shared_round(*key):
                    # On the one way it has the value of the round before.
                    under = Guard(guard.kind, guard.why)
            left, right = one.get(key, now), other.get(key, now)
            # A length that is known on the one way alone is not known.
            together[key] = None if key[1] == "#known" and left != right else join(left, right, under)
        return together


def _is_seen(owner: Ref) -> bool:
    return not isinstance(owner, Container) or owner.escaped


def join(left: Value | None, right: Value | None, guard: Guard | None = None) -> Value | None:
    """What a slot holds after two ways to it; `guard` is what the ranks stood under that went different ones."""
    if guard is not None and not guard.parts_ranks:
        guard = None
    if left is None or right is None:
        known = left or right
        if known is None or guard is None or known.refs:
            return known
        return _parted(known, guard)
    if left is right or left == right:
        return left
    refs = left.refs if left.refs == right.refs else tuple(dict.fromkeys([*left.refs, *right.refs]))
    same_constant = (
        left.const is not UNSET and left.const == right.const and type(left.const) is type(right.const)
    )
    place, why = _place(left, right, None if same_constant else guard)
    token, delta = None, None
    if left.token is not None and left.token == right.token and guard is None:
        token = left.token
        deltas = [value.delta for value in (left, right) if value.delta is not None]
        delta = joined(*deltas) if len(deltas) == 2 else deltas[0] if deltas else None
    return Value(
        place,
        why,
        refs,
        left.type
        if left.type == right.type or right.const is None
        else right.type
        if left.const is None
        else "",
        left.const if same_constant else UNSET,
        token,
        delta,
        left.optional or right.optional or (left.const is None) != (right.const is None),
        left.text if left.text == right.text else "",
    )


def _is_of_round(place: Placement) -> bool:
    return place.degree == 0 and place.kind in (Kind.SAME, Kind.ROUND)


def _parted(value: Value, guard: Guard) -> Value:
    """A value that ranks have which went one way, and others do not."""
    if guard.kind == "divergent":
        return value.placed(own("decided by all ranks together"), guard.why)
    return value.placed(MAIN, guard.why) if value.place.is_same else value


def _place(left: Value, right: Value, guard: Guard | None) -> tuple[Placement, Reason | None]:
    objects = [ref for ref in (*left.refs, *right.refs) if not isinstance(ref, Library)]
    if guard is not None and not objects:
        if guard.kind == "divergent":
            if guard.place.kind is Kind.ROUND and all(_is_of_round(value.place) for value in (left, right)):
                # A choice by this rank's round, between values of this round, is one of the original's rounds too.
                return replace(ROUND, samples=None), left.why or right.why or guard.why
            return own("decided by all ranks together"), guard.why
        parted = left if not left.place.is_same else right
        return (MAIN, guard.why) if parted.place.is_same else (parted.place, parted.why)
    if left.place == right.place:
        return left.place, left.why or right.why
    for one, other in ((left, right), (right, left)):
        # Nothing is there yet on one of the ways, or a total that begins with zero.
        if one.const is None or (is_zero(one) and other.place.kind in (Kind.SAME, Kind.LINEAR, Kind.ROUND)):
            return other.place, other.why
    place = joined(left.place, right.place)
    if place == left.place:
        return place, left.why
    return place, right.why if place == right.place else (right.why or left.why)
