"""Loops: gone through until what stands in each slot at their head is known."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from accelify.domains.placement import (
    BEFORE,
    Kind,
    Placement,
    added,
    function,
    own,
    same,
    settled,
)
from accelify.domains.replacing import replace
from accelify.domains.rounds import BEGUN, accumulated, carried, is_mean_of_round, is_sum_of_share
from accelify.heap.containers import array_of, elements, tuple_of
from accelify.heap.early_exits import take_back
from accelify.heap.joining import join
from accelify.heap.paths import of_each
from accelify.heap.pieces import Piece, Written
from accelify.heap.run import Event, Loop
from accelify.heap.values import (
    COUNTER,
    MORE,
    UNSET,
    Bound,
    Container,
    Flow,
    Guard,
    Instance,
    Iterable,
    Key,
    Library,
    Ref,
    Value,
    constant,
    is_zero,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_MOST_PASSES = 4
_MOST_ELEMENTS = 6


class Loops:
    """Goes through loops until what stands in each slot at their head is known."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run

    def go(self, node: ast.AST, over: Iterable, once: Callable[[Value], Flow | None]) -> Flow:
        """Go through a loop: quietly until its head is stable, then once more for what is met."""
        run, statements = self.run, self.engine.statements
        if 0 < len(over.elements) <= _MOST_ELEMENTS and not over.shared:
            found = self._one_by_one(node, over, once)
            if found is not None:
                return found
        guard = None
        # All ranks' batches are of one size, as the loader divides them.
        even = run.checks and over.rounds.kind is Kind.ROUND and over.rounds.even
        if not over.rounds.is_uniform and not even:
            text = f"`{run.segment(node)}` has other rounds on other ranks"
            kind = "main" if over.rounds.kind is Kind.MAIN else "divergent"  # a list that it alone has filled
            guard = Guard(
                kind, run.reason(node, text, over.uneven or over.item.why or over.item), over.rounds
            )
        head: dict[Key, Value | None] = {}
        flow: Flow = Flow()
        written: Written = {}
        deltas: dict[Key, Value | None] = {}
        events, first = len(run.events), list[Event]()
        item = over.item if over.shared else self._named(over.item, node)
        with run.loop(node, over.shared, over.samples) as loop:
            loop.whole, loop.uneven, loop.fewer = over.whole, None if guard else over.uneven, over.fewer
            loop.apart, loop.even = over.apart, over.even
            loop.parted = over.shared or array_of(over.item).kind is Kind.SHARD
            for number in range(_MOST_PASSES):
                run.store.begin(of_round=False)
                for key, value in head.items():
                    run.store.set(key[0], key[1], value)
                run.store.begin(of_round=True, shared=loop.shared)
                run.store.start(Piece(len(run.guards), len(run.loops), len(run.calls)), own_level=False)
                statements.rounds.append([])
                with run.under(guard):
                    flow = once(item) or Flow()
                take_back(run.store, statements.rounds.pop())
                piece = run.store.finish(own_level=False)
                written = run.store.undo()
                run.store.undo()
                ahead = over.item.type == MORE
                deltas = {
                    key: _wider(
                        self._head(key, _as_one(value, written, loop), loop, node, ahead), head.get(key)
                    )
                    for key, value in written.items()
                }
                changed = {
                    key: value
                    for key, value in deltas.items()
                    if not _is_passing(key[0]) and _differs(value, head.get(key, key[0].fields.get(key[1])))
                }
                if not piece.reads_any(changed):
                    # A further round would read what this one read.
                    break
                if number == _MOST_PASSES - 1:
                    why = run.reason(
                        node, f"`{run.segment(node)}` is not settled after {_MOST_PASSES} rounds"
                    )
                    for key, value in changed.items():
                        if value is not None and not value.refs:
                            deltas[key] = value.placed(own(), why)
                            if written.get(key) is not None:
                                written[key] = deltas[key]
                    break
                head.update(changed)
                if not number:
                    first = run.events[events:]
                del run.events[events:]
            if loop.shared and run.checks:
                run.meet("loop", node, "loop")
        run.events[events:] = _with_first(first, run.events[events:])
        if not flow.exits.keys() & {"break", "return"}:
            loop.loaders = over.loaders
        self._leave(node, flow, loop)
        if over.limited is not None and loop.shared and loop.meets:
            run.meet("leave", node, "islice", guards=[Guard("counted", over.limited)], detail="counted")
        for key, value in head.items():
            if key not in written:
                # Written by the first rounds alone.
                run.store.set(
                    key[0], key[1], value if value is None else replace(value, place=settled(value.place))
                )
        for key, value in written.items():
            run.store.set(key[0], key[1], self._after(key, value, deltas[key], loop))
        return Flow(True, {kind: guard for kind, guard in flow.exits.items() if kind == "return"})

    def _named(self, item: Value, node: ast.AST) -> Value:
        """What a loop goes over, each of its parts with a name for it."""
        line, known = getattr(node, "lineno", 0), elements(self.run, item)
        if known is None or any(one.refs for one in known):
            return of_each(item, line)
        return tuple_of(self.run, [of_each(one, line) for one in known])

    def asked(self, test: ast.expr, scope: Ref) -> Iterable:
        """What a `while` goes over: a loader's batches, where its test asks whether there was another one, or counts
        as many rounds as the loader has batches: `while number < len(loader)`."""
        self.run.store.begin()
        with self.run.quiet():
            more = self.engine.evaluate(test, scope)
            bounds = [self.engine.evaluate(one, scope) for one in _bounds(test)]
        self.run.store.undo()
        if bounds and bounds[0].const in (0, 1) and array_of(bounds[1]) == same(1):
            return Iterable(Value(), shared=True, rounds=same(1))
        return Iterable(Value(type=more.type), shared=more.type == MORE)

    def _one_by_one(self, node: ast.AST, over: Iterable, once: Callable[[Value], Flow | None]) -> Flow | None:
        """Go through a loop over a few known elements, each in its turn; None where a round may end the loop."""
        run, statements = self.run, self.engine.statements
        exits: dict[str, Guard | None] = {}
        events = len(run.events)
        run.store.begin()
        for item in over.elements:
            with run.loop(node, shared=False):
                statements.rounds.append([])
                flow = once(item) or Flow()
                take_back(run.store, statements.rounds.pop())
            if "break" in flow.exits or (not flow.reached and "continue" not in flow.exits):
                run.store.undo()
                del run.events[events:]
                return None
            for kind in ("return",):
                if kind in flow.exits:
                    exits[kind] = exits.get(kind) or flow.exits[kind]
        run.store.write_all(run.store.undo())
        return Flow(True, exits)

    def _head(
        self, key: Key, value: Value | None, loop: Loop, node: ast.AST, ahead: bool = False
    ) -> Value | None:
        """What a slot holds at the head of a round, after those before it; `ahead` says that a round draws the batch
        of the next one."""
        owner, name = key
        if name[0] == "#":
            stood = owner.fields.get(name)
            if name == "#known" and value != stood:
                return None
            return value if value is not None else stood
        before = self.run.peek(owner, name)
        if value is None:
            return before
        if value.token == key and value.delta is not None and value.delta.needs == BEGUN:
            value = value.plain()
        if value.token == key:
            if value.delta is None:
                return join(before, value.plain())
            return self._accumulated(before, value, loop, node)
        if name == "[]" or (isinstance(owner, Container | Instance) and loop.number in owner.loops):
            # One of many elements, not one that a round puts in place of another; or of an object of this round.
            return value.plain() if before is None else join(before, value.plain())
        bound = before is not None
        if before is None:
            before = value.plain()
        found = join(before, value.plain())
        alike = before.const is not UNSET and before.const == value.const
        # With nothing before the loop, who reads it has written it in the same round, or goes by what is the same.
        alike = alike or (not bound and value.place.is_same)
        if (
            loop.shared
            and not (ahead and value.place.kind is Kind.ROUND and value.place.rows)
            and not alike
            and found is not None
            and not value.refs
            and all(isinstance(ref, Container) or getattr(ref, "kind", "") == "table" for ref in found.refs)
            and value.place.kind is not Kind.OWN
        ):
            found = replace(found, refs=())
            place = carried(array_of(before), value.place, bound)
            name = key[1] if key[1].isidentifier() else "it"
            return found.placed(place, self.run.reason(node, f"`{name}` as the round before left it", value))
        return found

    def _after(self, key: Key, value: Value | None, head: Value | None, loop: Loop) -> Value | None:
        """What a slot holds after the loop: a total, or what the last round wrote."""
        if value is None:
            return None
        if value.token == key:
            found = head if head is not None else value
            phase = "" if loop.shared and value.delta is not None else found.place.phase
            return replace(found, place=replace(found.place, phase=phase))
        if not loop.shared or not value.place.phase or value.type == COUNTER:
            return value.plain()
        # What was added to another slot's total is not known to be what that total got.
        place = replace(value.place, phase=BEFORE) if value.delta is not None else value.place
        return replace(value.plain(), place=settled(place))

    def _accumulated(self, before: Value | None, value: Value, loop: Loop, node: ast.AST) -> Value | None:
        assert value.delta is not None
        base = before if before is not None else _NOTHING
        nothing = base.const is None and not base.refs
        begins = None if _is_begin(base, value.delta) or nothing else base.place
        place = accumulated(begins, value.delta, loop.shared, loop.samples)
        if loop.shared and place.kind in (Kind.SAME, Kind.LINEAR):
            # A converted figure is to be exact, and the last batches of the ranks may have other sizes.
            counts = self.run.checks and begins is None and place.degree == 1 and value.delta.even
            place = replace(place, phase=BEFORE, rows=counts and place.kind is Kind.LINEAR)
        if place.is_same and value.delta.is_same:
            return Value(
                place,
                None,
                base.refs,
                value.type,
                UNSET,
                base.token,
                _plus(base, accumulated(None, value.delta, loop.shared, loop.samples)),
            )
        name = value.token[1] if value.token else ""
        over = self.run.segment(node)
        text = (
            f"`{name}` adds up over `{over}`" if name.isidentifier() else f"a sum that adds up over `{over}`"
        )
        why = self.run.reason(node, text, value)
        if loop.parted and is_mean_of_round(value.delta):
            self.run.take_mean()
        if loop.parted and loop.fewer is None and is_sum_of_share(value.delta):
            self.run.take_sum(loop)
        return Value(
            place,
            why,
            base.refs,
            value.type,
            UNSET,
            base.token,
            _plus(base, accumulated(None, value.delta, loop.shared, loop.samples)),
        )

    def _leave(self, node: ast.AST, flow: Flow, loop: Loop) -> None:
        """A loop in which ranks meet, and which some of them may leave before the others."""
        for kind in ("break", "return"):
            guard = flow.exits.get(kind)
            if guard is None or not loop.meets:
                continue
            counts = loop.shared or (isinstance(node, ast.While) and not self._ends_within(node))
            if guard.parts_ranks or (guard.kind == "counted" and counts):
                self.run.meet("leave", node, kind, guards=[guard], detail=guard.kind)

    def _ends_within(self, node: ast.While) -> bool:
        """Whether a loop in another one ends by a count already, which then ends that one."""
        inner = [
            event.node for event in self.run.events if event.kind == "leave" and event.detail == "counted"
        ]
        return bool(inner) and not set(inner).isdisjoint(ast.walk(node))


def _bounds(test: ast.expr) -> list[ast.expr]:
    """What a test compares to count rounds: the number of the round, and how many there are."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return []
    pair = [test.left, *test.comparators]
    if isinstance(test.ops[0], ast.Lt | ast.LtE | ast.NotEq):
        return pair
    return pair[::-1] if isinstance(test.ops[0], ast.Gt | ast.GtE) else []


_NOTHING = constant(0)


def _with_first(first: list[Event], last: list[Event]) -> list[Event]:
    """The events of a loop: those of its last pass and, each in its place, what only the first round reaches, as a
    flag says that is set in it."""
    again = {event.node: number for number, event in enumerate(last)}
    found, done = list[Event](), 0
    for event in first:
        if event.node not in again:
            found.append(event)
        elif (place := again[event.node] + 1) > done:
            found += last[done:place]
            done = place
    return found + last[done:]


def _as_one(value: Value | None, written: Written, loop: Loop) -> Value | None:
    """A tuple that a round of a shared loop makes of its batch, as one value: the next round finds all of it."""
    pairs = value.of(Container) if value is not None and loop.shared else []
    if value is None or not pairs or len(pairs) != len(value.refs):
        return value
    if not all(ref.type == "tuple" and loop.number in ref.loops for ref in pairs):
        return value
    inside = [
        one for (ref, name), one in written.items() if ref in pairs and name[0] == "[" and one is not None
    ]
    parts = [one for one in inside if not one.place.is_same]
    if not parts or any(one.refs for one in parts):
        return value
    place = function((one.place for one in parts), rowwise=True)
    return Value(place, parts[0].why, type="builtins.tuple")


def _is_begin(base: Value, delta: Placement) -> bool:
    """Whether what adds up begins with nothing; a counter may begin with the round before, or after, the first."""
    return is_zero(base) or (delta.kind is Kind.SAME and not base.refs and base.const in (-1, 1))


def _plus(base: Value, delta: Any) -> Any:
    if base.token is None:
        return None
    return delta if base.delta is None else added(base.delta, delta)


def _differs(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None:
        return one is not other
    return (one.place, set(map(_known, one.refs)), one.const if _plain(one.const) else None, one.text) != (
        other.place,
        set(map(_known, other.refs)),
        other.const if _plain(other.const) else None,
        other.text,
    )


def _wider(value: Value | None, before: Value | None) -> Value | None:
    """What a slot holds at the head of a round: a number that changes from round to round is not known."""
    if value is None or before is None or UNSET in (value.const, before.const) or value.const == before.const:
        return value
    return replace(value, const=UNSET)


def _is_passing(ref: Ref) -> bool:
    """Whether an object is another one in each round, so that what it holds never settles."""
    return isinstance(ref, Container) and ref.passing


def _known(ref: Ref) -> object:
    """What makes an object the same one from round to round."""
    if isinstance(ref, Library):
        return ref.name
    return type(ref) if isinstance(ref, Iterable | Bound) or _is_passing(ref) else ref


def _plain(value: Any) -> bool:
    return value is UNSET or isinstance(value, str | int | float | bool | None)
