"""What a script counts of its steps, and what it makes of such a count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.syntax import (
    assigned_pairs,
    calls_in,
    dotted,
    is_constant,
    names_in,
    target_names,
    walk,
)
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Class, Entity

_DEEPEST = 4
_OF_THE_BATCH = (v.BATCH, v.OUTPUT, v.TENSOR)
_NUMBERS = frozenset({"float", "int", "len", "round"})


class CountedSteps:
    """What runs for every batch of a loop, and what is counted there.

    Args:
        script: its model.
        loop: over batches.
    """

    def __init__(self, script: ScriptModel, loop: Loop) -> None:
        self.script, self.loop = script, loop
        self.scope = script.scope_of(loop)
        self._own = [n for s in loop.body for n in walk(s)]
        # The functions that run for every batch, with the calls that lead to them from the loop.
        self.reached: dict[Scope, tuple[ast.Call, ...]] = {self.scope: ()}
        queue = [self.scope]
        for scope in queue:
            chain = self.reached[scope]
            for call in self.nodes(scope) if len(chain) < _DEEPEST else ():
                for callee in in_order(script.callees(call)) if isinstance(call, ast.Call) else ():
                    if callee not in self.reached:
                        self.reached[callee] = (*chain, call)  # type: ignore[arg-type]
                        queue.append(callee)
        self._calls = {n for scope in queue for n in self.nodes(scope) if isinstance(n, ast.Call)}
        self._assigning: dict[Scope, dict[str, list[ast.Assign]]] = {}
        self._counters: list[tuple[str, Scope]] = []
        # Those of them that count samples or tokens.
        self.of_batches: set[str] = set()
        # Those that go up by a share of the way: `warm_up = min(1.0, warm_up + 0.9 / steps)`.
        self.ramps: set[str] = set()
        for scope in queue:
            for node in self.nodes(scope):
                name, by = _counted_up(node)
                of_batch = by is not None and scope is self.scope and self._is_size(by)
                if name is not None and (isinstance(by, ast.Constant) or of_batch or self._is_one(by, scope)):
                    self._counters.append((name, scope))
                    self.of_batches |= {name} if of_batch else set()
                elif (ramp := self._ramp(node)) is not None:
                    self._counters.append((ramp, scope))
                    self.ramps.add(ramp)

    def module(self, scope: Scope) -> Module:
        """The module that contains a scope."""
        return self.script.interpreter.module_of(scope)

    def nodes(self, scope: Scope) -> list[ast.AST]:
        """What of a scope runs for every batch."""
        return self._own if scope is self.scope else list(scope.nodes)

    def counted_by_length(self, loops: list[Loop]) -> bool:
        """Whether a loop around the batches ends after so many steps: `range(steps // len(loader))`."""
        trace = Trace(self)
        for loop in loops:
            if loop is not self.loop:
                trace.follow(loop.test if isinstance(loop, ast.While) else loop.iter, self.scope)
        return trace.divided

    def counter(
        self, stmt: ast.Assign | ast.AugAssign, scope: Scope, chain: tuple[ast.Call, ...]
    ) -> str | None:
        """What counts the steps that a rate is set by; "" for a factor at each step, None for nothing of these."""
        tests = list(self.tests(stmt, scope))
        outer = self.scope
        for call in chain:
            tests += self.tests(call, outer)
            outer = next((s for s in self.reached if self.reached[s][-1:] == (call,)), outer)
        trace = Trace(self)
        trace.follow(stmt.value, scope)
        for test, place in [*tests]:
            trace.follow(test, place)
        if trace.by_length:
            return next(
                (found for test, place in tests if (found := self._configured_number(test, place))), None
            )
        if trace.counters:
            return min(trace.counters)
        factor = isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, (ast.Mult, ast.Div))
        factor = factor or (
            isinstance(stmt.value, ast.BinOp)
            and isinstance(stmt.value.op, (ast.Mult, ast.Div))
            and any(isinstance(n, ast.Subscript) and is_constant(n.slice, "lr") for n in walk(stmt.value))
        )
        return "" if factor and not tests else None

    def _configured_number(self, test: ast.expr, scope: Scope) -> str | None:
        """The count of steps that a test looks for among configured numbers: `step in milestones`, where `step`
        is `epoch * len(loader) + i`."""
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.In, ast.Eq)):
            return None
        count, stated = Trace(self), Trace(self)
        count.follow(test.left, scope)
        stated.follow(test.comparators[0], scope)
        over = count.by_length and bool(count.counters) and not stated.by_length and not stated.counters
        return dotted(test.left) or min(count.counters) if over else None

    def tests(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """The tests on which it depends whether a node runs for a batch."""
        for ancestor in self.module(scope).tree.ancestors(node):
            if ancestor is self.loop or ancestor is scope.node:
                return
            if isinstance(ancestor, (ast.If, ast.While, ast.IfExp)):
                yield ancestor.test, scope

    def counts(self, name: str, scope: Scope) -> bool:
        """Whether a variable, or an attribute of `self`, goes up with every batch."""
        root = name.partition(".")[0]
        for counted, place in self._counters:
            if counted != name:
                continue
            if "." not in name and place.resolve(root) is scope.resolve(root):
                return True
            if "." in name and self._share_attributes(place.owner_class, scope.owner_class):
                return True
        return self._is_index(name) and scope.resolve(name) is self.scope.resolve(name)

    def _share_attributes(self, one: ast.ClassDef | None, other: ast.ClassDef | None) -> bool:
        """Whether what one class sets on `self` can be what the other one reads: itself, a base or a subclass."""
        if one is None or other is None:
            return False
        contained = [self.script.interpreter.entities.get((node, "class")) for node in (one, other)]
        first, second = (cls.ancestry() if isinstance(cls, Class) else [] for cls in contained)
        return one is other or contained[0] in second or contained[1] in first

    def _is_index(self, name: str) -> bool:
        """`i` of `for i, batch in enumerate(loader)`."""
        return counter_of(self.script, self.loop) == name

    def assigning(self, scope: Scope, name: str) -> list[ast.Assign]:
        """The plain assignments of a name, or of an attribute of `self`, in a function."""
        found = self._assigning.get(scope)
        if found is None:
            found = self._assigning[scope] = {}
            for stmt in scope.nodes:
                if isinstance(stmt, ast.Assign):
                    known = {n for t in stmt.targets for n in (dotted(t), *target_names(t)) if n}
                    for one in known:
                        found.setdefault(one, []).append(stmt)
        return found.get(name, [])

    def _is_size(self, added: ast.expr) -> bool:
        """Whether what is added is a number of samples or tokens of the batch: `x.size(0)`, `(y >= 0).sum()`."""
        given = (
            set(target_names(self.loop.target)) if isinstance(self.loop, (ast.For, ast.AsyncFor)) else set()
        )
        if not names_in(added) & given:
            return False
        if (
            isinstance(added, ast.Call)
            and isinstance(added.func, ast.Attribute)
            and added.func.attr == "item"
        ):
            added = added.func.value
        if isinstance(added, ast.Call) and isinstance(added.func, ast.Attribute) and added.func.attr == "sum":
            return isinstance(added.func.value, ast.Compare)
        return size_of(added) is not None

    def _ramp(self, node: ast.AST) -> str | None:
        """The number that goes up to a bound by what is no tensor: `scale = min(1.0, scale + 0.9 / steps)`."""
        value = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(value, ast.Call) or dotted(value.func) not in ("min", "max") or value.keywords:
            return None
        name = dotted(node.targets[0]) if isinstance(node, ast.Assign) else None
        moved = [a for a in value.args if isinstance(a, ast.BinOp) and isinstance(a.op, (ast.Add, ast.Sub))]
        if name is None or len(value.args) != 2 or len(moved) != 1 or dotted(moved[0].left) != name:
            return None
        plain = all(
            not isinstance(part, (ast.Name, ast.Attribute)) or not self.script.is_a(part, *_OF_THE_BATCH)
            for arg in value.args
            for part in walk(arg)
        )
        calls = calls_in(moved[0].right)
        return name if plain and all(dotted(call.func) in _NUMBERS for call in calls) else None

    def _is_one(self, added: ast.expr | None, scope: Scope) -> bool:
        """Whether a name, or an attribute of `self`, is set to 1 and to nothing else."""
        name = dotted(added) if isinstance(added, (ast.Name, ast.Attribute)) else None
        if name is None:
            return False
        place, cls = scope.resolve(name), scope.owner_class
        places = [place] if place is not None else []
        if "." in name and cls is not None and name.rpartition(".")[0] == scope.self_name():
            places = list(self.script.scope_for(cls).children.values())
        values = [
            value
            for place in places
            for stmt in place.of_type(ast.Assign)
            for target in stmt.targets
            for one, value in assigned_pairs(target, stmt.value)
            if name in (dotted(one), *target_names(one))
        ]
        return bool(values) and all(is_constant(value, 1) for value in values)

    def given(self, scope: Scope, name: str) -> Iterator[tuple[ast.expr, Scope]]:
        """What calls pass for a parameter, those for every batch where there are such."""
        pairs = self.script.interpreter.callers.get(scope, [])
        often = [(m, c) for m, c in pairs if c in self._calls]
        for module, call in often or pairs:
            for value, parameter in handed_to(call, scope):
                if parameter == name:
                    yield value, module.scopes.of(call)


class Trace:
    """Follows what an expression is made of to counts of steps and to lengths of loaders.

    Args:
        steps: what is counted.

    `counters` are the names of the counts that were met so far; `by_length` is whether a loader's length was, which
    makes a share of an epoch of a count; `divided` is whether a number was divided by one, which makes rounds of steps.
    """

    def __init__(self, steps: CountedSteps, divisions: set[ast.BinOp] | None = None) -> None:
        self.steps, self.script = steps, steps.script
        self._divisions: set[ast.BinOp] = divisions if divisions is not None else set()
        self.counters: set[str] = set()
        self.by_length = self.divided = False
        self._seen: set[tuple[object, str]] = set()

    def follow(self, expression: ast.expr, scope: Scope) -> None:
        """Look what an expression of a scope is made of."""
        for node in walk(expression):
            if isinstance(node, ast.Call):
                self._call(node, scope)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
                self._divide(node, scope)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                name = dotted(node)
                if name is not None:
                    self._read(name, scope)

    def _divide(self, division: ast.BinOp, scope: Scope) -> None:
        if division not in self._divisions:
            self._divisions.add(division)
            divisor = Trace(self.steps, self._divisions)
            divisor.follow(division.right, scope)
            self.divided |= divisor.by_length

    def _call(self, call: ast.Call, scope: Scope) -> None:
        if dotted(call.func) == "len" and len(call.args) == 1:
            contained = self.script.interpreter.evaluate(self.steps.module(scope), scope, call.args[0])
            self.by_length |= any(isinstance(w, Entity) and w.kind == v.LOADER for w in contained)
        for callee in in_order(self.script.callees(call)):
            if (callee, "") in self._seen:
                continue
            self._seen.add((callee, ""))
            for node in callee.nodes:
                if isinstance(node, ast.Return) and node.value is not None:
                    self.follow(node.value, callee)
                    for test, place in self.steps.tests(node, callee):
                        self.follow(test, place)

    def _read(self, name: str, scope: Scope) -> None:
        own = scope.method_around.self_name()
        if "." in name:
            if own is None or name.split(".")[0] != own or name.count(".") > 1:
                return
            key: tuple[object, str] = (scope.owner_class, name)
        else:
            key = (scope.resolve(name), name)
        if key in self._seen or key[0] is None:
            return
        self._seen.add(key)
        if self.steps.counts(name, scope):
            self.counters.add(name)
            if name not in self.steps.ramps:
                return  # of how many steps a ramp is made, its assignments say
        places = [key[0]]
        if isinstance(key[0], ast.ClassDef):
            places = list(self.script.scope_for(key[0]).children.values())
        for place in places:
            assert isinstance(place, Scope)
            for stmt in self.steps.assigning(place, name):
                self.follow(stmt.value, place)
                for test, around in self.steps.tests(stmt, place):
                    self.follow(test, around)
            if place.kind == "function" and name in {a.arg for a in place.parameters()}:
                for value, outer in self.steps.given(place, name):
                    self.follow(value, outer)


def _counted_up(node: ast.AST) -> tuple[str | None, ast.expr | None]:
    """The name in `step += 1` and `step = step + 1`, and what is added."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return dotted(node.target), node.value
    if (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.Add)
    ):
        name, sides = dotted(node.targets[0]), [node.value.left, node.value.right]
        others = [side for side in sides if dotted(side) != name]
        if name is not None and len(others) == 1:
            return name, others[0]
    return None, None
