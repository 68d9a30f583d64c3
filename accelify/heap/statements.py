"""Statements: what they bind, where they lead, and loops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from accelify.domains.placement import function, nearer, same
from accelify.domains.replacing import replace
from accelify.heap import early_exits, shapes
from accelify.heap.appending import is_first
from accelify.heap.changed_elements import Changed
from accelify.heap.chosen_elements import added_to_one
from accelify.heap.containers import array_of, element, elements, overwrite, put, refill, with_rest
from accelify.heap.counts import holds, size
from accelify.heap.early_exits import Way
from accelify.heap.flags import truth
from accelify.heap.frames import Frame, is_dear
from accelify.heap.frozen import asked_for_parameters, note_loop
from accelify.heap.handlers import (
    ends_well,
    leaving,
    left_alone,
    of_some,
    parting,
    reached,
    suppressing,
)
from accelify.heap.library_state import redirected
from accelify.heap.modules import asks_for_main
from accelify.heap.names import bound_as
from accelify.heap.operators import IN_PLACE, as_load
from accelify.heap.pieces import Written
from accelify.heap.state import is_part, parameter_written, part_written
from accelify.heap.tables import is_of_container, passed_back, with_part, written_to
from accelify.heap.turns import FIRST, take_turns
from accelify.heap.values import (
    BATCH,
    DEVICE,
    ENDED,
    FIRST_FLAG,
    SHAPES,
    TENSOR,
    TUPLE,
    TURN,
    UNSET,
    Class,
    Container,
    Flow,
    Function,
    Guard,
    Instance,
    Ref,
    Scope,
    Value,
    is_zero,
)
from accelify.heap.wrapped_weights import under_key

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


class Statements:
    """Goes through statements in a scope."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self.frames: list[Frame] = []
        self._outermost = Frame(0, 0)
        # For each loop around: the ways out of its rounds.
        self.rounds: list[list[Way]] = []
        self._handlers: dict[type[ast.stmt], Callable[[Any, Ref], Flow | None]] = {
            getattr(ast, name[1:]): getattr(self, name)
            for name in dir(self)
            if name.startswith("_") and isinstance(getattr(ast, name[1:], None), type)
        }

    def block(self, body: Sequence[ast.stmt], scope: Ref) -> Flow:
        """Go through statements one after the other. After one that some ranks leave early, the rest is divergent."""
        begun, pushed, flow = len(self.run.guards), 0, Flow()
        exits: dict[str, Guard | None] = {}
        rests: list[list[Way]] = []
        for number, stmt in enumerate(body):
            if not self.run.spend():
                self.run.stop_before(body[number:])
                break
            self.run.entered.add(stmt)
            met, before = len(self.run.events), early_exits.counted(self)
            flow = self.engine.step(stmt, scope)
            exits = early_exits.merged(exits, flow.exits)
            if flow.exits and flow.reached and number + 1 < len(body):
                rests.append(early_exits.begin_rest(self, before))
            if self.run.checks and isinstance(stmt, ast.If):
                pushed += take_turns(self.run, stmt, self.run.events[met:], begun)
            if not flow.reached:
                self.run.leave_out(body[number + 1 :])
                break
            for way, guard in flow.exits.items():
                if guard is not None and (guard.parts_ranks or guard.kind == "missing"):
                    self.run.guards.append(replace(guard, left=leaving(stmt, way)))
                    pushed += 1
        del self.run.guards[len(self.run.guards) - pushed :]
        for ways in reversed(rests):
            early_exits.end_rest(self.run.store, ways)
        return Flow(flow.reached, exits)

    def step(self, stmt: ast.stmt, scope: Ref) -> Flow:
        """Go through a statement; in a loop not where it is known and reads what it read."""
        handler = self._handlers.get(type(stmt))
        if handler is None:
            return Flow()
        frame = self.frames[-1] if self.frames else self._outermost
        if len(self.rounds) == frame.rounds or not is_dear(stmt):
            return handler(stmt, scope) or Flow()
        memory, left = self.engine.memory, self.rounds[-1]
        key = memory.statement(stmt, scope)
        known = memory.of_statement(frame.known, key)
        if known is not None:
            flow, returned, ways, broken = known.result
            frame.returned += returned
            frame.left += ways
            left += broken
            return cast(Flow, flow)
        before = len(frame.returned), len(frame.left), len(left)
        memory.begin(key[-1])
        flow = handler(stmt, scope) or Flow()
        result = flow, frame.returned[before[0] :], frame.left[before[1] :], left[before[2] :]
        memory.end_statement(frame.known, key, result)
        return flow

    # Binding

    def bind(self, target: ast.expr, value: Value, scope: Ref) -> None:
        """Write a value to a target."""
        if isinstance(target, ast.Name):
            self.engine.names.write(target.id, value, scope)
        elif isinstance(target, ast.Attribute):
            base = self.engine.evaluate(target.value, scope)
            part_written(self.run, base, value, target, name=target.attr)
            if target.attr == "data" and not base.refs:
                self.bind_again(target.value, value, scope)
            self.engine.attributes.write(base, target.attr, value, target)
        elif isinstance(target, ast.Subscript):
            self._bind_element(target, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Starred):
            made = self.run.passing("list", self.run.shared_loops())
            put(self.run, made, value)
            self.bind(target.value, Value(refs=(made,), type="list"), scope)

    def _unpack(self, targets: Sequence[ast.expr], value: Value, scope: Ref) -> None:
        known = elements(self.run, value)
        known = known if known is None else with_rest(self.run, known, targets)
        starred = any(isinstance(target, ast.Starred) for target in targets)
        for number, target in enumerate(targets):
            if known is not None and len(known) == len(targets):
                part = known[number].plain()
                target = target.value if isinstance(target, ast.Starred) else target
            elif value.of(Container):
                part = element(self.run, value, target, UNSET if starred else number)
            elif value.refs:
                part = self.engine.iteration.over(value, target).item
            elif value.type in SHAPES and not starred:
                part = size(self.run, target, value, number)
            else:
                part = replace(value.plain(), type=TENSOR if value.type == TUPLE else value.type)
                if part.type == BATCH and not starred:
                    part = self.engine.iteration.part(shapes.with_axes(part, 0), number)
            self.bind(target, part, scope)

    def _bind_element(self, target: ast.Subscript, value: Value, scope: Ref, *, again: bool = False) -> None:
        base, holder = written_to(self.engine, target.value, scope)
        key = Value() if isinstance(target.slice, ast.Slice) else self.engine.evaluate(target.slice, scope)
        if is_part(base):
            place = function((array_of(key), array_of(value)), rowwise=True)
            part_written(self.run, base, self.run.made(target, place, key, value), target, key, again=again)
        whole = isinstance(at := target.slice, ast.Slice) and at.lower is at.upper is at.step is None
        if whole and refill(self.run, base, value, target):
            return
        for ref in base.of(Container):
            if key.const is UNSET and not isinstance(target.slice, ast.Slice):
                overwrite(self.run, ref, value, key)
            part = isinstance(target.slice, ast.Slice) and value.of(Container)
            inner = element(self.run, value, target) if part else under_key(value, key)
            put(self.run, ref, inner, key.const, filling="" if key.const is not UNSET else "rounds")
        if any(self.engine.calls.special(ref, "__setitem__", [key, value], target) for ref in base.refs):
            return
        if base.where and not base.refs and (base.type == BATCH or base.where != value.where == DEVICE):
            base = replace(base, where="")  # a part of a batch may lie elsewhere now: a list's, of no tensor
            self.bind_again(holder, base, scope)
        if not base.refs and is_zero(base) and not is_zero(value):
            base = replace(base, const=UNSET)
            self.bind_again(holder, base, scope)
        if array_of(value).is_same:
            return
        if isinstance(key.const, str) and not (base.refs or base.type) and base.place.is_same:
            # Of a table of which nothing is known the element under one key is another one, and no other.
            made = self.run.passing("dict", self.run.shared_loops())
            put(self.run, made, Value())
            put(self.run, made, value, key.const)
            table = Value(refs=(made,), type="dict")
            self.bind_again(holder, table, scope)
            passed_back(self.engine, holder, table)
        elif all(getattr(ref, "kind", "") == "table" for ref in base.refs):
            # A part of an array or a table is written: another version of it.
            why = self.run.reason(target, f"`{self.run.segment(target)}` is written", value)
            place = with_part(self.run, base, array_of(value), again)
            self.bind_again(holder, replace(base.placed(place, why), refs=()), scope)

    def bind_again(self, node: ast.expr, value: Value, scope: Ref) -> None:
        """Write a value back to the place that an expression read it from, where it is one."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("_")
        ):
            # `x.resize_(n).copy_(y)` writes to x.
            self.bind_again(node.func.value, value, scope)
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "data"
            and not self.engine.evaluate(node.value, scope).of(Instance)
        ):
            self.bind_again(node.value, value, scope)  # a tensor's
        elif isinstance(node, ast.Name | ast.Attribute) or is_of_container(self.engine, node, value, scope):
            self.bind(node, value, scope)

    # Simple statements

    def _Expr(self, stmt: ast.Expr, scope: Ref) -> Flow:
        if self.engine.evaluate(stmt.value, scope).type != ENDED:
            return Flow()
        # With an error the launcher ends the other processes; without one they go on by themselves.
        return Flow(False, {"return": None} if self.run.checks and ends_well(stmt.value) else {})

    def _Assign(self, stmt: ast.Assign, scope: Ref) -> None:
        if added_to_one(self.engine, stmt, scope):
            return
        first = stmt.targets[0]
        if len(stmt.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
            if len(first.elts) == len(stmt.value.elts) and not any(
                isinstance(e, ast.Starred) for e in [*first.elts, *stmt.value.elts]
            ):
                values = [self.engine.evaluate(part, scope) for part in stmt.value.elts]
                for target, value in zip(first.elts, values, strict=True):
                    self.bind(target, value, scope)
                return
        value = self.engine.evaluate(stmt.value, scope)
        if value.place.turned and value.type == TENSOR and isinstance(first, ast.Tuple | ast.List):
            if not isinstance(stmt.value, ast.Call):  # which may give several, each as it is
                value = replace(value, place=nearer(value.place))
        for target in stmt.targets:
            self.bind(target, value, scope)

    def _AnnAssign(self, stmt: ast.AnnAssign, scope: Ref) -> None:
        if stmt.value is not None:
            self.bind(stmt.target, self.engine.evaluate(stmt.value, scope), scope)

    def _AugAssign(self, stmt: ast.AugAssign, scope: Ref) -> None:
        if added_to_one(self.engine, stmt, scope):
            return
        load = ast.copy_location(as_load(stmt.target), stmt.target)
        left, right = self.engine.evaluate(load, scope), self.engine.evaluate(stmt.value, scope)
        for ref in left.of(Instance):
            given = self.engine.calls.special(ref, IN_PLACE.get(type(stmt.op), ""), [right], stmt)
            if given is not None:
                self.bind(stmt.target, given, scope)
                return
        if isinstance(stmt.op, ast.Add) and left.of(Container):
            for ref in left.of(Container):
                put(self.run, ref, element(self.run, right, stmt), filling="samples")
            return
        made = self.engine.expressions.operate(stmt, stmt.op, left, right)
        if isinstance(stmt.target, ast.Subscript):
            self._bind_element(stmt.target, made, scope, again=True)
        else:
            self.bind(stmt.target, parameter_written(self.run, stmt, left, made), scope)

    def _Delete(self, stmt: ast.Delete, scope: Ref) -> None:
        for target in stmt.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                self.engine.calls.emptied(self.engine.evaluate(target.value, scope))

    def _Global(self, stmt: ast.Global, scope: Ref) -> None:
        if isinstance(scope, Scope):
            scope.globals |= frozenset(stmt.names)

    def _Nonlocal(self, stmt: ast.Nonlocal, scope: Ref) -> None:
        if isinstance(scope, Scope):
            scope.nonlocals |= frozenset(stmt.names)

    def _Import(self, stmt: ast.Import, scope: Ref) -> None:
        for alias in stmt.names:
            bound = alias.asname or alias.name.split(".")[0]
            name = alias.name if alias.asname else bound
            self.engine.names.write(bound, self.engine.modules.imported(name, alias.name), scope)

    def _ImportFrom(self, stmt: ast.ImportFrom, scope: Ref) -> None:
        self.engine.modules.import_from(stmt, scope)

    def _FunctionDef(self, stmt: ast.FunctionDef | ast.AsyncFunctionDef, scope: Ref) -> None:
        made = Function(stmt, self.run.module, scope, stmt.name)
        self.engine.calls.keep_defaults(made, stmt.args, scope)
        made.decorators = tuple(self.engine.evaluate(deco, scope) for deco in stmt.decorator_list)
        self._decorated(made, made.decorators, stmt, scope)

    def _decorated(
        self,
        made: Ref,
        decorators: Sequence[Value],
        stmt: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        scope: Ref,
    ) -> None:
        """Bind a function or a class to its name, as what the project's own decorators make of it."""
        value = Value(refs=(made,))
        for decorator in reversed(decorators):
            if decorator.refs and all(
                isinstance(getattr(ref, "method", ref), Function) for ref in decorator.refs
            ):
                value = self.engine.calls.call(decorator, [value], {}, stmt)
        self.engine.names.write(bound_as(stmt), value if value.refs else Value(refs=(made,)), scope)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, stmt: ast.ClassDef, scope: Ref) -> None:
        bases = tuple(self.engine.evaluate(base, scope) for base in stmt.bases)
        made = Class(stmt, self.run.module, stmt.name, bases)
        body = Scope(self.run.module, scope, is_class=True)
        body.cls = made
        self.block(stmt.body, body)
        for name, value in list(body.fields.items()):
            self.run.store.set(made, name, value)
        self._decorated(made, [self.engine.evaluate(one, scope) for one in stmt.decorator_list], stmt, scope)

    def _Assert(self, stmt: ast.Assert, scope: Ref) -> Flow:
        return Flow(holds(self.engine, stmt.test, scope))

    # Ways out

    def _Return(self, stmt: ast.Return, scope: Ref) -> Flow:
        value = Value(const=None) if stmt.value is None else self.engine.evaluate(stmt.value, scope)
        if self.frames:
            frame = self.frames[-1]
            guards = [guard for guard in self.run.guards[frame.guards :] if guard.parts_ranks]
            frame.returned.append((value.plain(), guards[0] if guards else None))
        return Flow(False, {"return": None})

    def _Raise(self, stmt: ast.Raise, scope: Ref) -> Flow:
        if stmt.exc is not None:
            self.run.meet("raise", stmt, "raise", [self.engine.evaluate(stmt.exc, scope)])
        return Flow(False)

    def _Break(self, stmt: ast.Break, scope: Ref) -> Flow:
        return Flow(False, {"break": None})

    def _Continue(self, stmt: ast.Continue, scope: Ref) -> Flow:
        return Flow(False, {"continue": None})

    # Branches

    def _If(self, stmt: ast.If, scope: Ref) -> Flow:
        test = self.engine.evaluate(stmt.test, scope)
        if (known := truth(test)) is not None:
            taken, left = (stmt.body, stmt.orelse) if known else (stmt.orelse, stmt.body)
            self.run.leave_out([] if asks_for_main(stmt.test) else left)
            return self.block(taken, scope)
        choices = self.engine.choices
        asked = choices.asked(stmt.test, scope)

        def go(taken: bool) -> Flow:
            with choices.taking(asked, taken), choices.beginning(stmt.test, scope, taken):
                return self.block(stmt.body if taken else stmt.orelse, scope)

        return choices.fork(
            (self.engine.guard(test, stmt.test), lambda: go(True)),
            (self.engine.guard(test, stmt.test, taken=False), lambda: go(False)),
            decided=lambda taken: choices.hold(stmt.test, scope, taken),
            asked=asked,
            first=is_first(stmt.test, test),
            is_regular=test.type == TURN and not test.place.is_same,
        )

    def keep_for_later(self, kind: str, written: Written, guard: Guard | None) -> list[Way]:
        """Note what was written on a way that leaves a function or a round early."""
        way = Way(written, guard)
        if kind == "return" and self.frames:
            self.frames[-1].left.append(way)
        elif kind in ("break", "continue") and self.rounds:
            self.rounds[-1].append(way)
        return [way]

    def _Match(self, stmt: ast.Match, scope: Ref) -> Flow:
        subject = self.engine.evaluate(stmt.subject, scope)
        guard = self.engine.guard(subject, stmt.subject)
        ways = [(guard, lambda case=case: self.block(case.body, scope)) for case in stmt.cases]
        return self.engine.choices.fork(*ways, (guard, Flow))

    def _Try(self, stmt: ast.Try, scope: Ref) -> Flow:
        store = self.run.store
        store.begin()
        met = len(self.run.events)
        flow = self.block(stmt.body, scope)
        left_alone(self.run, stmt, met)
        written, of_one = store.undo(), of_some(self.run, stmt, met)

        def whole() -> Flow:
            store.write_all(written)
            if not flow.reached:
                return flow
            rest = self.block(stmt.orelse, scope)
            return Flow(rest.reached, early_exits.merged(flow.exits, rest.exits))

        def handled(handler: ast.ExceptHandler) -> Flow:
            store.write_all(store.merged({}, written, None))
            if handler.name:
                self.engine.names.write(handler.name, Value(), scope)
            return self.block(handler.body, scope)

        ways = [
            (of_one or parting(self.run, handler, met), lambda handler=handler: handled(handler))
            for handler in reached(self.run, stmt)
        ]
        result = self.engine.choices.fork((None, whole), *ways) if ways else whole()
        if stmt.finalbody:
            last = self.block(stmt.finalbody, scope)
            result = Flow(result.reached and last.reached, early_exits.merged(result.exits, last.exits))
        return result

    _TryStar = _Try

    def _With(self, stmt: ast.With | ast.AsyncWith, scope: Ref) -> Flow:
        if (tried := suppressing(self.engine, stmt, scope)) is not None:
            return self.block([tried], scope)
        guards = 0
        managers: list[tuple[Value, ast.expr]] = []
        for item in stmt.items:
            value = self.engine.evaluate(item.context_expr, scope)
            managers.append((value, item.context_expr))
            if value.type == FIRST_FLAG:
                reason = self.run.reason(item.context_expr, "the main process first")
                self.run.guards.append(Guard(FIRST, reason))
                guards += 1
            entered = self.engine.calls.entered(value, item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, entered, scope)
        met = len(self.run.events)
        flow = self.block(stmt.body, scope)
        for value, node in reversed(managers):
            redirected(self.engine, value, node, scope, met)
            self.engine.calls.exited(value, node)
        del self.run.guards[len(self.run.guards) - guards :]
        return flow

    _AsyncWith = _With

    # Loops

    def _For(self, stmt: ast.For | ast.AsyncFor, scope: Ref) -> Flow:
        value = self.engine.evaluate(stmt.iter, scope)
        left = Changed(self.engine, stmt, scope, over := self.engine.iteration.over(value, stmt.iter))

        def once(item: Value) -> Flow:
            left.begin()
            self.bind(stmt.target, item, scope)
            flow = self.block(stmt.body, scope)
            left.note(item)
            return flow

        flow = self.engine.loops.go(stmt.iter, over, once)
        left.write(value)
        if (of := asked_for_parameters(stmt)) is not None:
            note_loop(self.run, stmt, self.engine.evaluate(of, scope))
        rest = self.block(stmt.orelse, scope)
        return Flow(rest.reached, early_exits.merged(flow.exits, rest.exits))

    _AsyncFor = _For

    def _While(self, stmt: ast.While, scope: Ref) -> Flow:
        over = self.engine.loops.asked(stmt.test, scope)

        def once(item: Value) -> Flow:
            test = self.engine.evaluate(stmt.test, scope)
            guard = self.engine.guard(test, stmt.test) if over.rounds != same(1) else None
            with self.run.under(guard):
                flow = self.block(stmt.body, scope)
            if over.rounds == same(1):
                return flow  # as many rounds as a loader has batches
            if guard is None or not guard.parts_ranks:
                guard = self.engine.counted(test, stmt.test)
            if guard is not None:
                flow.exits["break"] = flow.exits.get("break") or guard
            return flow

        flow = self.engine.loops.go(stmt, over, once)
        rest = self.block(stmt.orelse, scope)
        return Flow(rest.reached, early_exits.merged(flow.exits, rest.exits))
