"""Which loops of a script train, and over which loaders."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property
from typing import TYPE_CHECKING, cast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.handed_on import batches_in, loaders_in, puts_part_in
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.branches import Constants, constants_of, decided
from accelify.analysis.statements.reaching import reaching_assignments
from accelify.analysis.syntax import Node, calls_in, names_in, walk
from accelify.analysis.trained import TrainedModels
from accelify.analysis.values import Entity, Sequence, Values

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

Loop = ast.For | ast.AsyncFor | ast.While

_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
_LOOPS = frozenset({ast.For, ast.AsyncFor, ast.While})
_KEEPING = frozenset("append extend add update put insert appendleft".split())
_OF_OPTIMIZERS = frozenset({"step", "zero_grad"})
_ENDING = (ast.Return, ast.Raise, ast.Continue)


class TrainingLoops(TrainedModels):
    """The part of the ScriptModel that knows what its loops do: which of them train, and what they iterate over."""

    if TYPE_CHECKING:

        def callees(self, call: ast.Call) -> Set[Scope]: ...
        def callers(self, scope: Scope) -> list[ast.Call]: ...

    @cached_property
    def training_scopes(self) -> set[Scope]:
        """Every scope from which a backward is reached, directly, through calls or through a function inside."""
        return _leading_to_backward(cast("ScriptModel", self), self._idle)

    @cached_property
    def _idle(self) -> set[ast.Call]:
        return _idle_calls(cast("ScriptModel", self), _leading_to_backward(cast("ScriptModel", self)))

    def trains(self, node: Node) -> bool:
        """Whether a statement or expression runs a backward, directly or through what it calls."""
        return node in self._training_nodes

    def trains_around(self, node: Node) -> bool:
        """Whether the loops around a node train."""
        return any(self.trains(loop) for loop in self.enclosing_loops(node))

    @cached_property
    def _training_nodes(self) -> set[Node]:
        """Every call that runs a backward, and everything around one."""
        calls: list[Node] = [b.call for b in self.backwards]
        training = self.training_scopes
        calls += [c for c in self.calls() if self.callees(c) & training and c not in self._idle]
        found: set[Node] = set(calls)
        for call in calls:
            for ancestor in self.tree.ancestors(call):
                if ancestor in found and ancestor not in calls:
                    break
                found.add(ancestor)
        return found

    def enclosing_loops(self, node: Node) -> list[Loop]:
        """The loops around a node in its function, innermost first."""
        found: list[Loop] = []
        child = node
        for ancestor in self.tree.ancestors(node):
            kind = type(ancestor)
            if kind in _DEFINITIONS:
                break
            if kind in _LOOPS and isinstance(ancestor, Loop) and child not in ancestor.orelse:
                if not (isinstance(ancestor, ast.For) and child is ancestor.iter):
                    found.append(ancestor)
            child = ancestor
        return found

    def iterated(self, expression: ast.expr) -> set[Entity]:
        """The loaders (or what looks like them) that iterating an expression draws batches from."""
        found: set[Entity] = set()
        stack: list[ast.expr] = [expression]
        while stack:
            node = stack.pop()
            name = ""
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else self.qualname(node.func) or ""
                if (
                    name in ("enumerate", "zip", "iter", "tqdm", "reversed", "list", "cycle")
                    or k.is_progress(name)
                    or (name.startswith("itertools."))
                ):
                    stack.extend(node.args)
                    stack.extend(kw.value for kw in node.keywords if kw.arg == "iterable")
            if name not in ("enumerate", "zip"):
                # The pairs of a zip are those of its arguments: two batches, for example, whose rows are no batches.
                contained = self._loaders_in(self.values(node))
                if len(contained) > 1 and isinstance(node, ast.Name):
                    made = reaching_assignments(cast("ScriptModel", self), node) or []
                    now = [self._loaders_in(self.values(stmt.value)) for stmt in made]
                    if now and all(now):
                        contained = contained & set().union(*now)
                found |= contained
        return found

    def _loaders_in(self, contained: Values) -> set[Entity]:
        return loaders_in(contained, self._holds_results)

    @cached_property
    def _results(self) -> dict[ast.Call, bool]:
        return {}

    def _holds_results(self, contained: Sequence) -> bool:
        """Whether a list is filled only with results (of loops that run a model, untrained) or parts of a batch."""
        for call in contained.filled - self._results.keys():
            self._results[call] = puts_part_in(cast("ScriptModel", self), call) or any(
                not self.trains(loop)
                and any(isinstance(n, ast.Call) and self.models_run(n) for n in walk(loop))
                for loop in self.enclosing_loops(call)
            )
        return bool(contained.filled) and all(self._results[call] for call in contained.filled)

    @cached_property
    def loader_loops(self) -> list[tuple[ast.For | ast.AsyncFor, set[Entity]]]:
        """Every `for` over a loader, with the loaders it can run over."""
        found = []
        for loop in self.tree.nodes(ast.For, ast.AsyncFor):
            loaders = self.iterated(loop.iter) if self.scope_of(loop) not in self.dormant else set()
            if loaders:
                found.append((loop, loaders))
        return found

    @cached_property
    def training_loaders(self) -> set[Entity]:
        """Loaders whose batches reach a backward."""
        found: set[Entity] = set()
        for loop, loaders in self.loader_loops:
            if any(self.trains(s) for s in loop.body):
                found |= loaders
        drawing: set[Scope] = set()
        for call in self.calls():
            # `next(iterator)` inside a training loop over steps, or in the function that makes one step
            source: ast.expr | None = None
            if isinstance(call.func, ast.Name) and call.func.id == "next" and call.args:
                source = call.args[0]
            elif isinstance(call.func, ast.Attribute) and call.func.attr in ("next", "__next__"):
                source = call.func.value
            if source is None:
                continue
            drawing.add(self.scope_of(call))
            if _is_drawn_to_train(cast("ScriptModel", self), call) or self._is_in_step(call):
                found |= self._loaders_in(self.values(source))
                found |= {t for b in batches_in(self.values(call)) for t in b.link("loader")}
        for call in self.calls() if drawing else ():
            # a function that yields the next batch: `batches.next()`, with `next(self.iterator)` in it
            if self.callees(call) & drawing and any(self.trains(loop) for loop in self.enclosing_loops(call)):
                found |= {t for b in batches_in(self.values(call)) for t in b.link("loader")}
        return found

    def _is_in_step(self, call: ast.Call) -> bool:
        """Whether a call is in a function that runs one backward and is called for each step."""
        scope = self.scope_of(call)
        return any(b.scope is scope and not self.enclosing_loops(b.call) for b in self.backwards) and any(
            self.trains_around(caller) for caller in self.callers(scope)
        )

    @cached_property
    def episode_loaders(self) -> set[Entity]:
        """Loaders that are made again inside a loop and read there once: the data of one episode, and no data set."""
        whole = {
            t
            for loop, loaders in self.loader_loops
            if any(self.trains(s) for s in loop.body)
            for t in loaders
        }
        found: set[Entity] = set()
        for holder in self.holders:
            loaders = {t for t in holder.entities if t.kind == v.LOADER} - whole
            made = [stmt for stmt, _ in holder.assignments]
            if loaders and made and all(self._in_episode(stmt) for stmt in made):
                found |= loaders
        return found

    def _in_episode(self, stmt: ast.stmt) -> bool:
        """Whether a statement is run for every step of a training loop, or of a loop next to it."""
        loops = self.enclosing_loops(stmt)
        outer = [loop for loop in loops if any(self.trains(s) for s in loop.body)]
        if not outer:
            return False
        steps = {loop for b in self.backwards for loop in self.enclosing_loops(b.call)[:1]}
        return outer[0] in steps or loops[0] is not outer[0]


# Batches that a training loop draws now and then to evaluate the model with, and that no step trains on.
#
# for step in range(steps):
#     x = next(batches)
#     ...
#     if step % 100 == 0:
#         model.eval()
#         x = next(test_batches)         <- evaluated in between
#         save_image(model(x), f"{step}.png")
#         model.train()


def _is_drawn_to_train(script: ScriptModel, draw: ast.Call) -> bool:
    """Whether `next(...)` draws a batch in a training loop that a step may train on."""
    return any(map(script.trains, script.enclosing_loops(draw))) and not _is_evaluated_between(script, draw)


def _is_evaluated_between(script: ScriptModel, draw: ast.Call) -> bool:
    """Whether what `next(...)` draws in a training loop stays in a part of it that evaluates and trains nothing."""
    tree, part = script.tree, _part_around(script, draw)
    if part is None or not _evaluates(script, part):
        return False
    loop = next((loop for loop in script.enclosing_loops(part) if script.trains(loop)), None)
    if loop is None:
        return False
    iterators = {n for call in calls_in(part) if _draws(call) for n in names_in(call)}
    retained = set(_stored(part)) - iterators
    if None in retained:
        return False
    first, last = tree.start(part), tree.end(part)
    mentions: dict[str, list[ast.Name]] = {}
    for name in (n for s in loop.body for n in walk(s) if isinstance(n, ast.Name) and n.id in retained):
        if not first <= tree.start(name) < last:
            mentions.setdefault(name.id, []).append(name)
    for names in mentions.values():
        names.sort(key=lambda n: _evaluated_at(script, n))
        afterwards = [n for n in names if tree.start(n) > last]
        if any(isinstance(group[0].ctx, ast.Load) for group in (names, afterwards) if group):
            return False
    return True


def _part_around(script: ScriptModel, node: ast.AST) -> ast.stmt | None:
    """The largest statement around a node, below the innermost loop that trains, which trains nothing itself."""
    found: ast.stmt | None = None
    for ancestor in script.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            if script.trains(ancestor):
                break
            found = ancestor
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
    return found if isinstance(found, (ast.If, ast.For, ast.While, ast.With)) else None


def _evaluates(script: ScriptModel, part: ast.stmt) -> bool:
    """Whether a part puts a model into evaluation, or runs one without gradients."""
    return any(
        (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "eval"
            and script.models_of(call.func.value)
        )
        or (script.models_of(call.func) and script.is_without_gradients(call))
        for call in calls_in(part)
    )


def _draws(call: ast.Call) -> bool:
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return last in ("next", "__next__")


def _stored(part: ast.stmt) -> Iterator[str | None]:
    """The variables that a part assigns; None for an attribute, which anyone may read."""
    for node in walk(part):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            yield from _root(node)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING
        ):
            yield from _root(node.func.value)


def _root(node: ast.expr) -> Iterator[str | None]:
    while isinstance(node, ast.Subscript):
        node = node.value
    yield node.id if isinstance(node, ast.Name) else None


def _evaluated_at(script: ScriptModel, name: ast.Name) -> tuple[int, bool]:
    """Where a mention of a variable counts: `x = f(x)` reads it before it stores it."""
    stmt = script.tree.statement(name)
    stores = isinstance(name.ctx, ast.Store)
    at = stmt if isinstance(stmt, (ast.Assign, ast.AugAssign)) else name
    return script.tree.start(at), stores


# Calls of a function that trains which train nothing: `step(x, y, net, optimizer=None)`, `step(x, y, train=False)`.


def _leading_to_backward(script: ScriptModel, idle: Set[ast.Call] = frozenset()) -> set[Scope]:
    """The scopes of a script's backwards, with those that call them by other calls than `idle` ones."""
    reached = {b.scope for b in script.backwards}
    queue = list(reached)
    while queue:
        scope = queue.pop()
        outer: list[Scope] = [script.scope_of(call) for call in script.callers(scope) if call not in idle]
        if scope.parent is not None and scope.kind == "function" and scope.parent.kind == "function":
            outer.append(scope.parent)
        for other in outer:
            if other not in reached:
                reached.add(other)
                queue.append(other)
    return reached


def _idle_calls(script: ScriptModel, training: Set[Scope]) -> set[ast.Call]:
    """Those of the calls of some functions that reach no backward, by the constants that they pass.

    Args:
        script: its model.
        training: the functions from which a backward is reached.
    """
    found: set[ast.Call] = set()
    for scope in training:
        for call in script.callers(scope) if scope.kind == "function" else ():
            callees = script.callees(call) & training
            if call not in found and all(_is_idle(script, call, callee, training) for callee in callees):
                found.add(call)
    return found


def _is_idle(script: ScriptModel, call: ast.Call, callee: Scope, training: Set[Scope]) -> bool:
    stored = {n.id for n in callee.of_type(ast.Name) if isinstance(n.ctx, ast.Store)}
    constants = {n: value for n, value in constants_of(callee, call).items() if n not in stored}
    if not constants:
        return False
    ways: list[Node] = [b.call for b in script.backwards if b.scope is callee]
    ways += [c for c in callee.calls if script.callees(c) & training]
    inner = any(s is not callee and callee in _around(s) for s in training)
    return bool(ways) and not inner and all(_is_ruled_out(script, callee, way, constants) for way in ways)


def _around(scope: Scope) -> list[Scope]:
    found = []
    while scope.parent is not None:
        scope = scope.parent
        found.append(scope)
    return found


def _is_ruled_out(script: ScriptModel, function: Scope, way: Node, constants: Constants) -> bool:
    """Whether a function does not reach a node, or would fail there: `None.step()`."""
    tree, child = script.tree, way
    for ancestor in tree.ancestors(way):
        if isinstance(child, ast.stmt):
            block = tree.block_of(child)[2]
            before = block[: block.index(child)] if child in block else []
            if any(isinstance(s, ast.If) and _leaves(s, constants) for s in before):
                return True
            if any(_fails(s, constants) for s in block):
                return True
        if ancestor is function.node:
            return False
        if isinstance(ancestor, ast.If):
            taken = decided(ancestor.test, constants)
            if (taken is False and child in ancestor.body) or (taken is True and child in ancestor.orelse):
                return True
        child = ancestor
    return False


def _leaves(branch: ast.If, constants: Constants) -> bool:
    taken = decided(branch.test, constants)
    way = branch.body if taken is True else branch.orelse if taken is False else []
    return bool(way) and isinstance(way[-1], _ENDING)


def _fails(stmt: ast.stmt, constants: Constants) -> bool:
    """`optimizer.step()` of what is None."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _OF_OPTIMIZERS
        and isinstance(call.func.value, ast.Name)
        and constants.get(call.func.value.id, ...) is None
    )
