"""The store: all writes of the abstract run, in a journal that can be undone and put together at a join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from accelify.domains.placement import Placement, joined, own
from accelify.domains.reasons import Reason
from accelify.heap.values import UNSET, Key, Ref, Value

Written = dict[Key, Value | None]


class Store:
    """Reads and writes of variables, fields and elements, all as (owner, name)."""

    def __init__(self) -> None:
        # Each level has what stood in a slot before the first write to it on that level.
        self._journals: list[Written] = []
        # The levels at which the rounds of loops began.
        self._rounds: list[int] = []

    def get(self, owner: Ref, name: str) -> Value | None:
        """What stands there, None where nothing was written."""
        return owner.fields.get(name)

    def set(self, owner: Ref, name: str, value: Value | None) -> None:
        """Write, or with None take away."""
        if self._journals:
            self._journals[-1].setdefault((owner, name), owner.fields.get(name))
        if value is None:
            owner.fields.pop(name, None)
        else:
            owner.fields[name] = value

    def begin(self, of_round: bool = False) -> None:
        """From here on writes can be undone; `of_round` says that a round of a loop begins."""
        if of_round:
            self._rounds.append(len(self._journals))
        self._journals.append({})

    def touched_in_round(self, owner: Ref, name: str) -> bool:
        """Whether something was written there since the round of the innermost loop began."""
        key = (owner, name)
        return any(key in journal for journal in self._journals[self._rounds[-1] :]) if self._rounds else True

    def undo(self) -> Written:
        """Take back all writes since the last `begin`, and give what they had left."""
        journal = self._journals.pop()
        if self._rounds and self._rounds[-1] == len(self._journals):
            self._rounds.pop()
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
        journals, rounds = self._journals, self._rounds
        self._journals, self._rounds = [], []
        try:
            yield
        finally:
            self._journals, self._rounds = journals, rounds

    def merged(self, one: Written, other: Written, divergent: Reason | None) -> Written:
        """What two ways from here leave together; `divergent` says why ranks may go different ones."""
        together: Written = {}
        for key in dict.fromkeys([*one, *other]):
            now = key[0].fields.get(key[1])
            together[key] = join(one.get(key, now), other.get(key, now), divergent)
        return together


def join(left: Value | None, right: Value | None, divergent: Reason | None = None) -> Value | None:
    """What a slot holds after two ways to it."""
    if left is None or right is None:
        known = left or right
        if known is None or divergent is None or known.refs:
            return known
        return known.placed(own("decided by all ranks together"), divergent)
    if left is right or left == right:
        return left
    refs = tuple(dict.fromkeys([*left.refs, *right.refs]))
    same_constant = left.const is not UNSET and left.const == right.const and type(left.const) is type(right.const)
    place, why = _place(left, right, divergent if not same_constant else None)
    token, delta = None, None
    if left.token is not None and left.token == right.token and divergent is None:
        token = left.token
        deltas = [value.delta for value in (left, right) if value.delta is not None]
        delta = joined(*deltas) if len(deltas) == 2 else deltas[0] if deltas else None
    return Value(
        place,
        why,
        refs,
        left.type if left.type == right.type else left.type or right.type if None in (left.const, right.const) else "",
        left.const if same_constant else UNSET,
        token,
        delta,
    )


def _place(left: Value, right: Value, divergent: Reason | None) -> tuple[Placement, Reason | None]:
    if divergent is not None and not (left.refs or right.refs):
        return own("decided by all ranks together"), divergent
    place = joined(left.place, right.place)
    if place == left.place:
        return place, left.why or (right.why if place == right.place else None)
    return place, right.why if place == right.place else (right.why or left.why)
