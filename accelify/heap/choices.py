"""Conditions that are asked more than once in a round of a loop: what one way left is there where it is gone again.

if flag:
    extra = penalty(x)
...
if flag:
    loss = loss + extra     # the one of this round, not what the round before left
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from accelify.domains.replacing import replace
from accelify.domains.rounds import BEGUN
from accelify.heap.accelerator import processes
from accelify.heap.appending import begun
from accelify.heap.containers import array_of, slots_of
from accelify.heap.early_exits import Way, stay
from accelify.heap.frames import Early, Frame
from accelify.heap.handlers import left_within
from accelify.heap.pieces import Written
from accelify.heap.random_draws import drawn_on_both
from accelify.heap.run import Event, Run
from accelify.heap.values import (
    SEVERAL,
    TUPLE,
    Container,
    Flow,
    Guard,
    Instance,
    Ref,
    Value,
    constant,
    is_zero,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Slot = tuple[Ref, str]
# A slot, with what is in it while a test holds, and what was.
Narrowed = tuple[Slot, Value, Value]
_SEQUENCES = ("tuple", "list")
_Left = tuple[Value | None, Value | None, Value | None]
_Way = tuple[Guard | None, Callable[[], Flow]]


class Choices:
    """What the two ways of a condition left."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.store = engine.run.store
        # For each slot that a condition reads: what is in others after both ways, after the one and after the other.
        self._left: dict[Slot, dict[Slot, _Left]] = {}

    def asked(self, test: ast.expr, scope: Ref) -> tuple[Slot, bool] | None:
        """The slot that a condition reads, and whether it is true where that is; None where it reads more than a name
        or an attribute, or where a round of the loop around may have changed it."""
        taken = True
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, taken = test.operand, not taken
        slot = _slot_of(self.engine, test, scope)
        if slot is None or slot[1] not in slot[0].fields or self.store.touched_in_round(*slot):
            return None
        return slot, taken

    @contextmanager
    def beginning(self, test: ast.expr, scope: Ref, taken: bool) -> Iterator[None]:
        """Within, a total may begin where there is none yet: it goes on from nothing, as one that is added to."""
        run = self.engine.run
        narrowed = self.narrow(test, scope, taken)
        slot = _absent(self.engine, test, scope, taken) if run.loops else None
        before = slot[0].fields.get(slot[1]) if slot is not None else None
        run.absent.append((slot, len(self.store.pieces)))
        yield
        run.absent.pop()
        value = slot[0].fields.get(slot[1]) if slot is not None else None
        if slot is not None and value is not None and value is not before:
            self.store.set(*slot, _begun(slot, value))
        self.widen(narrowed)

    def narrow(self, test: ast.expr, scope: Ref, taken: bool) -> list[Narrowed]:
        """Note what a test says of the kinds of variables, `isinstance(out, tuple)`, until `widen` is called with what
        this gives: the slots, with what is in them meanwhile and what was."""
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, taken = test.operand, not taken
        if isinstance(test, ast.BoolOp):
            parts = test.values if taken == isinstance(test.op, ast.And) else ()
            return [one for part in parts for one in self.narrow(part, scope, taken)]
        asked = _asked_for_tuple(test) if taken else None
        slot = _slot_of(self.engine, asked, scope) if asked is not None else None
        value = slot[0].fields.get(slot[1]) if slot is not None else None
        if slot is None or value is None or value.refs or not value.place.rows:
            return []
        known = replace(value, type=TUPLE)
        self.store.note(*slot)
        self.store.set(*slot, known)
        return [(slot, known, value)]

    def widen(self, narrowed: Sequence[Narrowed]) -> None:
        """Forget what `narrow` noted, where nothing was written since."""
        for slot, known, value in narrowed:
            if slot[0].fields.get(slot[1]) is known:
                self.store.set(*slot, value)

    def begun(self, test: ast.expr, scope: Ref, taken: bool, give: Callable[[], Value]) -> Value:
        """What one way of a conditional expression gives, which may begin a total."""
        narrowed = self.narrow(test, scope, taken)
        value = give()
        self.widen(narrowed)
        slot = _absent(self.engine, test, scope, taken) if self.engine.run.loops else None
        return value if slot is None else _begun(slot, value)

    def remember(self, asked: tuple[Slot, bool] | None, one: Written, other: Written, both: Written) -> None:
        """Note what the ways of a condition left, the one where it is true first."""
        if asked is None:
            return
        slot, taken = asked
        if not taken:
            one, other = other, one
        left = self._left.setdefault(slot, {})
        for key, value in both.items():
            if key[1][0] != "#":
                before = key[0].fields.get(key[1])
                left[key] = value, one.get(key, before), other.get(key, before)

    def fork(
        self,
        *ways: _Way,
        decided: Callable[[bool], None] | None = None,
        asked: tuple[Slot, bool] | None = None,
        first: bool = False,
        is_regular: bool = False,
    ) -> Flow:
        """Go several ways from one state, each with what it stands under, and put together what they leave.

        Args:
            ways: what each stands under, and what goes it.
            decided: called with which of two ways several processes go, where one alone goes the other.
            asked: what decides between two, where a later statement may ask for it again.
            first: whether one may be for a first round.
            is_regular: whether every so many rounds of a loop go the same way.
        """
        run, statements = self.engine.run, self.engine.statements
        results: list[tuple[Flow, Written, Guard | None]] = []
        frame = statements.frames[-1] if statements.frames else None
        given = [len(frame.returned)] if frame is not None else []
        met, parted_before = [len(run.events)], set(run.parted_streams)
        for guard, go in ways:
            run.store.begin()
            with run.under(guard, is_condition=not is_regular):
                flow = go()
            results.append((flow, run.store.undo(), guard))
            met.append(len(run.events))
            given += [len(frame.returned)] if frame is not None else []
        if run.checks and {guard.kind for guard, _ in ways if guard is not None} == {"main", "others"}:
            drawn_on_both(run, parted_before, met)
        alike = decided is not None and all(guard is None for guard, _ in ways)
        alike = alike and run.checks
        several = of_several(run, met) if alike else None
        if several is not None:
            results = [results[several]]
        guard = next((guard for _, _, guard in results if guard is not None), None)
        reached = [(written, under) for flow, written, under in results if flow.reached]
        exits: dict[str, Guard | None] = {}
        parted: list[Way] = []
        for number, (flow, written, under) in enumerate(results):
            for kind, rest in flow.exits.items():
                # What is left of the block stands under what the ranks stand under that stay.
                leaving = under if under is not None and under.parts_ranks else None
                after = (reached[0][1] or leaving) if reached and not flow.reached else None
                within = left_within(flow, rest, leaving, is_only_one=len(reached) < 2)
                exits[kind] = exits.get(kind) or within or after
            if reached and not flow.reached and flow.exits:
                kind = next(iter(flow.exits))
                in_call = frame is not None and kind == "return" and len(statements.rounds) == frame.rounds
                if alike and decided is not None and frame is not None and in_call and several is None:
                    events, of = (slice(one[number], one[number + 1]) for one in (met, given))
                    decide = partial(decided, bool(number))
                    frame.early.append(Early(events, of, len(frame.left), decide))
                parted += statements.keep_for_later(kind, written, guard)
        if len(reached) == 2 and alike and not exits:
            # What is put together where there are several processes is not put together where there is one.
            together = [any(map(_puts_together, run.events[met[n] : met[n + 1]])) for n in (0, 1)]
            reached = reached if together[0] == together[1] else [reached[together[1]]]
        ends = [written for written, _ in reached] or [written for _, written, _ in results]
        for key in ends[0].keys() & ends[-1].keys() if first and ends[1:] else ():
            ends[0][key], ends[1][key] = begun(ends[0][key], ends[1][key])
        left = ends[0]
        for other in ends[1:]:
            outlast(run, left, other)
            left = run.store.merged(left, other, guard, in_order=len(ends) == 2 and len(results) == 2)
        if len(reached) == 2:
            self.remember(asked, ends[0], ends[1], left)
        stay(run.store, parted, left)
        run.store.write_all(left)
        if several is not None and decided is not None:
            decided(not several)
        return Flow(bool(reached), exits)

    def leave_alone(self, frame: Frame) -> None:
        """Take out the ways that returned before several processes were joined: one process that is alone goes them."""
        events = self.engine.run.events
        for way in reversed(frame.early):
            met = [0, way.events.start, way.events.stop, len(events)]
            if [any(map(_joins, events[first:last])) for first, last in pairwise(met)] == [
                False,
                False,
                True,
            ]:
                del events[way.events], frame.returned[way.returned], frame.left[way.left]
                way.decided()

    @contextmanager
    def taking(self, asked: tuple[Slot, bool] | None, taken: bool) -> Iterator[None]:
        """Within, there is what the same way of an earlier condition left, as far as nothing was written since."""
        put: list[tuple[Slot, Value, Value]] = []
        if asked is not None:
            for key, (both, one, other) in self._left.get(asked[0], {}).items():
                value = one if asked[1] == taken else other
                if both is not None and value is not None and key[0].fields.get(key[1]) is both:
                    self.store.note(*key)
                    self.store.set(*key, value)
                    put.append((key, value, both))
        yield
        for key, value, both in put:
            if key[0].fields.get(key[1]) is value:
                self.store.set(*key, both)

    def hold(self, test: ast.expr, scope: Ref, taken: bool) -> None:
        """Note that a condition holds, or does not, wherever several processes run the script."""
        run = self.engine.run
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.hold(test.operand, scope, not taken)
        elif isinstance(test, ast.BoolOp):
            for part in test.values if taken == isinstance(test.op, ast.And) else ():
                self.hold(part, scope, taken)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            number = getattr(test.comparators[0], "value", None)
            counts = ast.Gt | ast.GtE | ast.NotEq if taken else ast.Lt | ast.LtE | ast.Eq
            if number in (1, 2) and isinstance(test.ops[0], counts):
                self.note(test.left, scope, processes(run, test))
        else:
            self.note(test, scope, Value(type=SEVERAL) if taken else constant(False))

    def note(self, node: ast.expr, scope: Ref, value: Value) -> None:
        """Write to where an expression is read from what is known of it now."""
        run, slot = self.engine.run, _slot_of(self.engine, node, scope)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            tables = self.engine.evaluate(node.value, scope).of(Container)
            slot = (tables[0], f"[{node.slice.value!r}]") if len(tables) == 1 else None
        if slot is None and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            # Options of which nothing is known, as of a function that a library calls.
            owner, base = (
                self.engine.names.owner(node.value.id, scope),
                self.engine.evaluate(node.value, scope),
            )
            if owner is not None and not base.refs and not base.type and base.place.is_same:
                options = run.allocate((node, node.value.id), lambda: Instance(None, "argparse.Namespace"))
                run.store.set(owner, node.value.id, replace(base, refs=(options,)))
                slot = options, node.attr
        stood = run.read(*slot) if slot is not None else None
        if slot is not None and not (stood is not None and stood.of(Instance)):
            run.store.set(*slot, value)


def of_several(run: Run, met: Sequence[int]) -> int | None:
    """Which of two ways several processes go: that on which they are joined, where they are not on the other one. What
    one process does there alone is taken out of what was met.

    Args:
        run: the run.
        met: how many events there were before the first way, between them, and after the second.
    """
    joined = [any(map(_joins, run.events[first:last])) for first, last in pairwise(met)]
    if not run.checks or joined[0] == joined[1]:
        return None
    number = int(joined[1])
    del run.events[met[1 - number] : met[2 - number]]
    return number


def _joins(event: Event) -> bool:
    return event.kind == "joins" or event.name == "Accelerator"


def _puts_together(event: Event) -> bool:
    name = event.name.rpartition(".")[2]
    return event.kind == "collective" and name.startswith(("all_reduce", "all_gather", "reduce", "gather"))


def _begun(slot: Slot, value: Value) -> Value:
    """A value as what is added to nothing."""
    if value.refs or value.token is not None or value.const is None:
        return value
    return replace(value, token=slot, delta=None if is_zero(value) else replace(array_of(value), needs=BEGUN))


def _slot_of(engine: Interpreter, node: ast.expr, scope: Ref) -> Slot | None:
    """The slot that a name or an attribute is read from."""
    if isinstance(node, ast.Name):
        owner = engine.names.owner(node.id, scope)
        return (owner, node.id) if owner is not None else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        base = engine.evaluate(node.value, scope).of(Instance)
        return (base[0], node.attr) if len(base) == 1 else None
    return None


def _asked_for_tuple(test: ast.expr) -> ast.expr | None:
    """What a test asks for being a tuple or a list."""
    if not isinstance(test, ast.Call) or getattr(test.func, "id", "") != "isinstance" or len(test.args) != 2:
        return None
    kinds = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    return test.args[0] if all(getattr(kind, "id", "") in _SEQUENCES for kind in kinds) else None


def _absent(engine: Interpreter, test: ast.expr, scope: Ref, taken: bool) -> Slot | None:
    """The slot in which nothing is yet on one way of a condition: `key not in table`, `total is None`."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, taken = test.operand, not taken
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    op, of = test.ops[0], test.comparators[0]
    if taken != isinstance(op, ast.NotIn | ast.Is | ast.Eq):
        return None
    if isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return _slot_of(engine, test.left, scope) if getattr(of, "value", 0) is None else None
    if not isinstance(op, ast.In | ast.NotIn) or not isinstance(of, ast.Name | ast.Attribute):
        return None
    tables = engine.evaluate(of, scope).of(Container)
    if len(tables) != 1 or tables[0].type != "dict" or not isinstance(test.left, ast.Name | ast.Constant):
        return None
    return slots_of(engine.run, tables[0], engine.evaluate(test.left, scope).const)[0]


def outlast(run: Run, one: Written, other: Written) -> None:
    """Let what one of two ways makes and puts into an object or a dictionary, where on the other that of a round before
    stays, last as long as they do: `if key not in table: table[key] = []`. It is begun once, not in each round."""
    for slot in list(one.keys() ^ other.keys()):
        owner, name = slot
        made, before = one.get(slot) or other.get(slot), owner.fields.get(name)
        if made is None or before is None or not isinstance(owner, Container | Instance):
            continue
        if owner.type != "dict" and (isinstance(owner, Container) or run.store.is_of_shared_round(*slot)):
            continue  # another element of a list, or an attribute of this round
        for ref in {ref for ref in made.refs if isinstance(ref, Container | Instance) and ref.loops}:
            if ref in before.refs:
                run.depends()
                run.place(ref, owner.loops)
                for way in (one, other):
                    for key in [key for key in way if key[0] is ref and key[1] in ref.fields]:
                        if run.store.pieces:
                            run.store.note(*key)
                        del way[key]
