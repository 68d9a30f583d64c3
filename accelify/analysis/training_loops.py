"""Which loops of a script train, and over which loaders."""

from __future__ import annotations

import ast
from collections.abc import Set
from functools import cached_property
from typing import TYPE_CHECKING, cast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.evaluated_between import is_drawn_to_train
from accelify.analysis.data.indirect_loaders import batches_in, loaders_in, puts_part_in
from accelify.analysis.schedules.idle_calls import idle_calls, leading_to_backward
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.reaching_assignments import reaching_assignments
from accelify.analysis.syntax import Node, walk
from accelify.analysis.trained import TrainedModels
from accelify.analysis.values import Entity, Sequence, Values

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

Loop = ast.For | ast.AsyncFor | ast.While

_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
_LOOPS = frozenset({ast.For, ast.AsyncFor, ast.While})


class TrainingLoops(TrainedModels):
    """The part of the ScriptModel that knows what its loops do: which of them train, and what they iterate over."""

    if TYPE_CHECKING:

        def callees(self, call: ast.Call) -> Set[Scope]: ...
        def callers(self, scope: Scope) -> list[ast.Call]: ...

    @cached_property
    def training_scopes(self) -> set[Scope]:
        """Every scope from which a backward is reached, directly, through calls or through a function inside."""
        return leading_to_backward(cast("ScriptModel", self), self._idle)

    @cached_property
    def _idle(self) -> set[ast.Call]:
        return idle_calls(cast("ScriptModel", self), leading_to_backward(cast("ScriptModel", self)))

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
            if is_drawn_to_train(cast("ScriptModel", self), call) or self._is_in_step(call):
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
