"""Batches that a training loop draws now and then to evaluate the model with, and that no step trains on.

for step in range(steps):
    x = next(batches)
    ...
    if step % 100 == 0:
        model.eval()
        x = next(test_batches)         <- evaluated in between
        save_image(model(x), f"{step}.png")
        model.train()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis.syntax import calls_in, names_in, walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_KEEPING = frozenset("append extend add update put insert appendleft".split())


def is_drawn_to_train(script: ScriptModel, draw: ast.Call) -> bool:
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
