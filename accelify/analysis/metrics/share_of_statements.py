"""What statements make of a value of one process's share: they bind it, add it up, decide by it, return it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import without_counter
from accelify.analysis.statements.growing import is_growth
from accelify.analysis.statements.slots import (
    TOTAL,
    Slot,
    SlotValue,
    joined,
    makes_anew,
    place_for,
)
from accelify.analysis.syntax import Tree, names_in, target_names, text_of, walk


class ShareOfStatements:
    """The statements that `OwnShare` reaches."""

    script: ScriptModel
    tree: Tree
    loops: set[ast.For | ast.AsyncFor | ast.While]
    bindings: Callable[[ast.Name], Iterable[ast.stmt | None]]
    contained: dict[Slot, SlotValue]
    decisions: dict[ast.If | ast.While, SlotValue]
    _bound: dict[Slot, set[ast.stmt | None]]
    _handing: dict[Scope, set[ast.Call]]
    _returned: dict[Scope, dict[int | None, SlotValue]]
    _inner: set[Scope]

    if TYPE_CHECKING:

        def slot(self, node: ast.expr) -> Slot | None: ...
        def _put(
            self, slot: Slot | None, contained: SlotValue, bound: Iterable[ast.stmt | None] | None
        ) -> None: ...
        def _is_unit(self, scope: Scope) -> bool: ...
        def _loops_itself(self, scope: Scope) -> bool: ...
        def _give_back(self, call: ast.Call, place: int | None, contained: SlotValue) -> None: ...
        def _is_of_whole_batch(self, read: ast.expr, contained: SlotValue) -> bool: ...

    def _statement(
        self, stmt: ast.stmt, child: ast.AST, contained: SlotValue, place: int | None = None
    ) -> None:
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and child is stmt.value:
            for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                self._assign_from(place_for(target, stmt.value, place), stmt, contained)
        elif isinstance(stmt, ast.AugAssign) and child is stmt.value:
            self._accumulate(stmt.target, stmt, contained)
        elif isinstance(stmt, (ast.For, ast.AsyncFor)) and child is stmt.iter and stmt not in self.loops:
            self._assign(without_counter(self.script, stmt), contained, stmt)
        elif isinstance(stmt, (ast.If, ast.While)) and child is stmt.test:
            self._decide(stmt, contained)
        elif isinstance(stmt, ast.Return):
            scope = self.script.scope_of(stmt)
            if scope.kind != "function" or self._is_unit(scope):
                return
            returned = self._returned.setdefault(scope, {})
            contained = returned[place] = joined(returned.get(place), contained)
            # What comes from its arguments comes back to who gave them.
            given = any(s.owner is scope and None in bound for s, bound in self._bound.items())
            asked = self._handing[scope] if given and not self._loops_itself(scope) else None
            for call in self.script.callers(scope) if asked is None else asked:
                if not self._is_of_whole_batch(call, contained):
                    self._give_back(call, place, contained)

    def _assign_from(self, target: ast.expr, stmt: ast.Assign | ast.AnnAssign, contained: SlotValue) -> None:
        if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) and stmt.value is not None:
            grows = isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant)
            if not grows and names_in(target) <= names_in(stmt.value) and is_growth(stmt.value):
                text = text_of(target)
                grows = any(
                    type(n) is type(target) and isinstance(n, ast.expr) and text_of(n) == text
                    for n in walk(stmt.value)
                )
            if grows:
                self._accumulate(target, stmt, contained)
                if isinstance(target, ast.Name):
                    self._assign(target, self.contained.get(self.slot(target), contained), stmt)  # type: ignore[arg-type]
                return
        self._assign(target, contained, stmt)

    def _assign(self, target: ast.AST, contained: SlotValue, stmt: ast.stmt | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, contained, stmt)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, contained, stmt)
        elif isinstance(target, ast.Name):
            self._put(self.slot(target), contained, (stmt,) if stmt is not None else None)
        elif isinstance(target, ast.expr):
            self._put(self.slot(target), contained, self._bindings_of(target))

    def _bindings_of(self, target: ast.expr) -> set[ast.stmt | None] | None:
        """The statements that bound the variable in which something is stored."""
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        scope = self.script.scope_of(target)  # another one's variable is read there, wherever that is
        own = isinstance(target, ast.Name) and scope.resolve(target.id) is scope
        return (set(self.bindings(target)) or None) if own else None  # type: ignore[arg-type]

    def _accumulate(
        self, target: ast.expr, stmt: ast.stmt, contained: SlotValue, besides: ast.stmt | None = None
    ) -> None:
        """Something is added to what a slot holds."""
        slot = self.slot(target)
        if slot is None:
            return
        if self._outlives_a_batch(slot, stmt, besides):
            contained = SlotValue(TOTAL, frozenset({stmt}) | contained.origins)
        self._put(slot, contained, self._bindings_of(target))

    def _outlives_a_batch(self, slot: Slot, stmt: ast.stmt, besides: ast.stmt | None = None) -> bool:
        """Whether a slot lasts from batch to batch where a statement adds to it; `besides` resets it at times."""
        scope = self.script.scope_of(stmt)
        for loop in self.script.enclosing_loops(stmt):
            if loop in self.loops:
                return not (
                    isinstance(loop, (ast.For, ast.AsyncFor))
                    and isinstance(slot.owner, Scope)
                    and slot.root in target_names(loop.target)
                ) and not makes_anew(loop.body, slot, besides)
            if makes_anew([s for s in loop.body if self.tree.is_after(stmt, s)], slot):
                return False
        if scope not in self._inner:
            return False
        if isinstance(slot.owner, Scope) and slot.owner is scope:
            return self._changes(stmt, slot) and scope.takes(slot.root)
        return True

    def _decide(self, stmt: ast.If | ast.While, contained: SlotValue) -> None:
        self.decisions[stmt] = joined(self.decisions.get(stmt), contained)
        # What is set in one branch only tells which one was taken.
        for inner in (n for s in [*stmt.body, *stmt.orelse] for n in walk(s)):
            if isinstance(inner, ast.AugAssign):
                self._accumulate(inner.target, inner, contained)
            elif isinstance(inner, ast.Assign) and not self.script.iterated(inner.value):
                for target in inner.targets:
                    slot = self.slot(target)
                    if slot is not None and self._outlives_a_batch(slot, inner, besides=stmt):
                        # `if loss < least: least = loss`
                        self._accumulate(target, inner, contained, besides=stmt)
                    if not isinstance(target, (ast.Tuple, ast.List)):
                        self._assign_from(target, inner, contained)
            elif isinstance(inner, ast.Return) and isinstance(inner.value, ast.Constant):
                self._statement(inner, inner.value, contained)

    def _changes(self, stmt: ast.stmt, slot: Slot) -> bool:
        """Whether a statement changes an object in place, and does not bind a name again."""
        if self.script.scope_of(stmt) is not slot.owner:
            return False
        if isinstance(stmt, (ast.Assign, ast.AugAssign)):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            return any(isinstance(t, (ast.Subscript, ast.Attribute)) for t in targets)
        return isinstance(stmt, ast.Expr)
