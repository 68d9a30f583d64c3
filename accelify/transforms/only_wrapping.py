"""Statements that do nothing but wrap a model, which are removed with the wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.statements.conditions import around_alone
from accelify.analysis.syntax import call_argument, dotted, text_of, walk
from accelify.dropped_moves import place_of
from accelify.transforms.base import Context
from accelify.writer.edits import Delete, Edit

_MOVES = ("cuda", "to")


def only_wraps(context: Context, stmt: ast.stmt, calls: list[ast.Call]) -> bool:
    """Whether a statement does nothing but put names into wrappers of what they hold: `net = DataParallel(net)`."""
    if not isinstance(stmt, ast.Assign):
        return False
    target, value = stmt.targets[0], stmt.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        targets, values = [target], [value]
    else:
        targets, values = target.elts, value.elts
    if len(targets) != len(values):
        return False
    for one, made in zip(targets, values, strict=True):
        call = next((n for n in walk(made) if isinstance(n, ast.Call) and n in calls), None)
        inner = call_argument(call, 0, "module") if call is not None else None
        if call is None or inner is None or not _only_moved(context, made, call):
            return False
        contained = _unmoved(context, inner)
        if not isinstance(contained, (ast.Name, ast.Attribute, ast.Subscript)) or text_of(one) != text_of(
            contained
        ):
            return False
    return True


def without_statement(
    context: Context, stmt: ast.stmt, only_wrapping: set[ast.stmt]
) -> tuple[list[Edit], set[ast.stmt]]:
    """The edits that take such a statement out, with the branch that does nothing else, and what they take out."""
    tree = context.tree
    branch = tree.parent(stmt)
    if isinstance(branch, ast.For) and only_wrapping.issuperset(branch.body) and not branch.orelse:
        # `for i in range(len(self.layers)): self.layers[i] = DataParallel(self.layers[i])`
        around: ast.AST | None = tree.parent(branch)
        loop: ast.stmt = branch
        if (
            isinstance(around, ast.If)
            and around.body == [branch]
            and not around.orelse
            and not tree.is_elif(around)
        ):
            loop = around_alone(tree, around)
        context.claim(loop)
        return [Delete(loop)], set(branch.body)
    if not isinstance(branch, ast.If) or not _only_reports(branch, only_wrapping):
        context.claim(stmt)
        return [Delete(stmt)], {stmt}
    deleted = only_wrapping.intersection(branch.body)
    if not branch.orelse and not tree.is_elif(branch):
        target = around_alone(tree, branch)
        context.claim(target)
        return [Delete(target)], deleted
    if stmt in branch.body and branch.orelse:
        # Tests for several devices are removed with them, and the other branch is what is left.
        context.claim(*branch.body)
        return [Delete(s) for s in branch.body], deleted
    context.claim(stmt)
    return [Delete(stmt)], {stmt}


def moves_within(stmts: Iterable[ast.stmt]) -> list[ast.Call]:
    """The moves in statements that are removed: with the wrapper, or of what it wraps."""
    calls = (node for stmt in stmts for node in walk(stmt) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES]


def _is_retained(context: Context, move: ast.Call) -> bool:
    """Whether a move stays, as the engine has seen that prepare does not replace it."""
    return place_of(context.tree, move) in context.retained


def _only_moved(context: Context, value: ast.expr, call: ast.Call) -> bool:
    """Whether a value is the wrapper itself, or the wrapper with a move that prepare makes: `.cuda()`."""
    moves = (ast.Attribute, ast.Call)
    moved = False
    while value is not call and isinstance(value, moves):
        if isinstance(value, ast.Call):
            if not isinstance(value.func, ast.Attribute) or value.func.attr not in _MOVES:
                return False
            if any(kw.arg == "dtype" for kw in value.keywords) or _is_retained(context, value):
                return False
            moved, value = True, value.func.value
        else:
            return False
    return value is call and (not moved or context.plan.gets_all(call))


def _unmoved(context: Context, inner: ast.expr) -> ast.expr:
    """What is wrapped, without a move that prepare makes: `DataParallel(model.cuda())`."""
    while (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in _MOVES
        and not any(kw.arg == "dtype" for kw in inner.keywords)
        and not _is_retained(context, inner)
        and context.plan.gets_all(inner.func.value)
    ):
        inner = inner.func.value
    return inner


def _only_reports(branch: ast.If, only_wrapping: set[ast.stmt]) -> bool:
    """Whether a branch does nothing besides the wrapping but print."""
    return all(
        s in only_wrapping
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and dotted(s.value.func) == "print")
        for s in branch.body
    )
