"""Numberings that grow while a loop trains: each process numbers what it meets in its own batches.

index[word] = len(index)                     (in a training loop, or in a function that it calls: a finding)
self.index[word] = self.size; self.size += 1
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.metrics.figures import BatchLoop
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.syntax import dotted, is_constant, text_of, walk
from accelify.transforms.base import Change, Context, Rule

NUMBERING = Rule(
    "ACC431",
    "own-numbering",
    "A numbering that grows while a loop trains is another one on every process.",
    effort=15,
)
_MARK = "number everything before the loop, on every process alike"
_WORDS = re.compile(rb"\]\s*=\s*(len\(|[\w.]+\s*[;#\r\n])")
# How far into functions a loop is followed.
_FARTHEST = 3


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for the first call, or statement, of each training loop that numbers something anew."""
    if not context.plan.shares_training_data or context.plan.known.distributed:
        return
    if not any(module.tree.mentions(_WORDS) for module in context.script.modules):
        return
    for loop in context.shared_loops():
        found = _first(context, loop)
        if found is None:
            continue
        place, text = found
        message = (
            f"`{text}` numbers what one process meets in its own batches: the same thing gets another number on each, "
            "and weights that go by it mean different things"
        )
        yield context.todo(NUMBERING, place, message, _MARK)


def _first(context: Context, loop: BatchLoop) -> tuple[ast.stmt, str] | None:
    nodes = [node for stmt in loop.body for node in walk(stmt)]
    own = _numbering(nodes)
    if own is not None:
        return own, text_of(own)
    for call in nodes:
        for callee in in_order(context.script.callees(call)) if isinstance(call, ast.Call) else ():
            within = _within(context, callee, set(), 0)
            if within is not None:
                return context.tree.statement(call), text_of(within)
    return None


def _within(context: Context, function: Scope, seen: set[Scope], far: int) -> ast.stmt | None:
    """The statement of a function, or of one that it calls, that numbers something anew."""
    if function in seen or far > _FARTHEST:
        return None
    seen.add(function)
    nodes = list(function.nodes)
    found = _numbering(nodes)
    for call in nodes if found is None else ():
        for callee in in_order(context.script.callees(call)) if isinstance(call, ast.Call) else ():
            found = found or _within(context, callee, seen, far + 1)
    return found


def _numbering(nodes: list[ast.AST]) -> ast.stmt | None:
    """`index[word] = len(index)` among some nodes, of a table that is not made anew among them."""
    counted = {
        dotted(n.target)
        for n in nodes
        if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and is_constant(n.value, 1)
    }
    fresh = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Subscript):
            continue
        table, value = dotted(target.value), node.value
        if table is None or table in fresh or isinstance(target.slice, ast.Constant):
            continue
        length = isinstance(value, ast.Call) and dotted(value.func) == "len" and len(value.args) == 1
        if length and isinstance(value, ast.Call) and dotted(value.args[0]) == table:
            return node
        kept = dotted(value) if isinstance(value, ast.Attribute) else None
        if kept is not None and kept in counted and kept.rpartition(".")[0] == table.rpartition(".")[0]:
            return node
    return None


__all__ = ["transform"]
