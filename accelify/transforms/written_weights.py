"""Weights that a training loop writes by what a process makes of its own batch: the models of the processes part.

worst = (outputs["h"] * grads["h"]).sum(0).argmin()    (what hooks have kept of the batch)
layer.weight.data[worst] = 0                           (a finding: every process takes another one out)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.figures import BatchLoop, Figures
from accelify.analysis.syntax import dotted, names_in, target_names, walk
from accelify.analysis.values import Function
from accelify.transforms.base import Change, Context, Rule, short

WRITTEN = Rule(
    "ACC424",
    "written-weights",
    "Weights are written by what a process makes of its own batch.",
    effort=15,
)
_MARK = "let all processes agree on what decides it: accelerator.reduce or accelerator.gather before"
_WEIGHT = re.compile(r"(^|_)(weight|bias)s?(_|$)")
_HOOKS = frozenset(
    """register_forward_hook register_forward_pre_hook register_backward_hook register_full_backward_hook
    register_full_backward_pre_hook""".split()
)
_FILLING = frozenset({"append", "update", "extend", "add"})
_AGREEING = frozenset({"reduce", "gather", "gather_for_metrics", "all_reduce", "broadcast"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for the first weight that something of the batch writes, in each training loop."""
    kept: set[str] | None = None
    for loop in context.shared_loops():
        writes = [w for s in loop.body for n in walk(s) if (w := _write(context, n)) is not None]
        if not writes:
            continue
        kept = _kept_by_hooks(context) if kept is None else kept
        own = _own(context, loop, kept)
        for weight, deciding in writes:
            if any(names_in(part) & own and not _agrees(part) for part in deciding):
                text = short(context.tree.segment(weight))
                message = (
                    f"`{text}` is written by what one process makes of its own batch, so that the models part"
                )
                yield context.todo(WRITTEN, context.tree.statement(weight), message, _MARK)
                break


def _write(context: Context, node: ast.AST) -> tuple[ast.expr, list[ast.expr]] | None:
    """The weight of a model that a node writes in place, and what decides the place and the value."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, deciding = node.targets[0], [node.value]
    elif isinstance(node, ast.AugAssign):
        target, deciding = node.target, [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not node.func.attr.endswith("_") or node.func.attr.endswith("__"):
            return None
        target, deciding = node.func.value, [*node.args, *[kw.value for kw in node.keywords]]
    else:
        return None
    written: ast.expr = target
    while isinstance(written, ast.Subscript):
        deciding.append(written.slice)
        written = written.value
    if isinstance(written, ast.Attribute) and written.attr == "data":
        written = written.value
    if written is target and isinstance(target, ast.Name):
        return None  # a variable that is bound anew
    if not isinstance(written, ast.Attribute) or not _WEIGHT.search(written.attr):
        return None
    holder: ast.expr = written.value
    while not context.script.models_of(holder):
        if not isinstance(holder, (ast.Attribute, ast.Subscript)):
            return None
        holder = holder.value
    return target, deciding


def _own(context: Context, loop: BatchLoop, kept: set[str]) -> set[str]:
    """The names in a loop that hold what one process makes of its batch, or what is made of that."""
    figures = Figures(context.script, context.plan.reductions)
    found = figures.of_the_batch(loop) | kept
    agreed: set[str] = set()
    assigns = [n for s in loop.body for n in walk(s) if isinstance(n, ast.Assign)]
    for _ in range(3):
        for stmt in assigns:
            names = {n for t in stmt.targets for n in target_names(t)}
            read = names_in(stmt.value)
            if _agrees(stmt.value) or (read & agreed and not read & found):
                agreed |= names
                found -= names
            elif kept and read & found:
                found |= names - agreed
    return found


def _agrees(value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and (dotted(n.func) or "").rsplit(".", 1)[-1] in _AGREEING
        for n in walk(value)
    )


def _kept_by_hooks(context: Context) -> set[str]:
    """The variables in which hooks keep what a model makes of a batch."""
    found: set[str] = set()
    for call in context.script.calls():
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _HOOKS and call.args):
            continue
        hook = call.args[0]
        bodies: list[ast.AST] = [hook.body] if isinstance(hook, ast.Lambda) else []
        if isinstance(hook, (ast.Name, ast.Attribute)):
            bodies += [w.scope.node for w in context.script.values(hook) if isinstance(w, Function)]
        for node in (n for body in bodies for n in walk(body)):
            holder: ast.expr | None = None
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                holder = node.targets[0].value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                holder = node.func.value if node.func.attr in _FILLING else None
            if isinstance(holder, ast.Name):
                found.add(holder.id)
    return found
