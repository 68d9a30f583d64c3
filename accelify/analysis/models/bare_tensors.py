"""Tensors that are part of no model and that a script updates by hand with their gradients, besides what it prepares.

weight = torch.randn(1, requires_grad=True)
for x, y in loader:                             # prepared, for a model that is trained with it later
    (x @ weight - y).pow(2).mean().backward()
    with torch.no_grad():
        weight -= lr * weight.grad              # of one process's batches only
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.within_loops import runs_in
from accelify.analysis.syntax import call_argument, dotted, walk
from accelify.analysis.values import Entity


@dataclass(frozen=True, eq=False)
class UpdatedTensor:
    """A tensor (or each of several, by the name of a loop) that is updated by hand.

    Args:
        name: what it is called where that is done.
        read: where its gradient is first read after backward.
        place: the statement before which the gradient has to be everybody's.
    """

    name: str
    read: ast.Attribute
    place: ast.stmt


def tensors_updated_by_hand(script: ScriptModel, prepared: Set[Entity]) -> Iterator[UpdatedTensor]:
    """The tensors that loops over prepared loaders train by hand, in source order."""
    reads: dict[tuple[Scope, str], list[ast.Attribute]] = {}
    for node in script.tree.nodes(ast.Attribute):
        if node.attr == "grad" and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            reads.setdefault((script.scope_of(node), node.value.id), []).append(node)
    if not reads:
        return
    loops = {loop for loop, loaders in script.loader_loops if loaders & prepared}
    stepped = [o for o in script.optimizers if isinstance(o.site, ast.Call)]
    for (scope, name), found in reads.items():
        if not _is_updated(scope, name) or not _are_bare(script, found[0].value, stepped):
            continue
        afterwards = script.tree.in_order(found)
        backwards = [b.call for b in script.backwards if b.scope is scope]
        if backwards:
            afterwards = [
                r for r in afterwards if any(_follows(script, r, call) is not None for call in backwards)
            ]
        if not afterwards or not runs_in(script, afterwards[0], loops):
            continue
        place = next(
            (p for p in (_follows(script, afterwards[0], c) for c in backwards) if p is not None), None
        )
        yield UpdatedTensor(name, afterwards[0], _inside(script, afterwards[0], place))


def _is_updated(scope: Scope, name: str) -> bool:
    """Whether a scope changes a tensor in its place: `w -= ...`, `w.data = ...`, `w.sub_(...)`."""
    own = (name, f"{name}.data")
    for node in scope.nodes:
        if isinstance(node, ast.AugAssign) and dotted(node.target) in own:
            return True
        if isinstance(node, ast.Assign) and any(dotted(t) == own[1] for t in node.targets):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            in_place = method.endswith("_") and method not in ("requires_grad_", "__")
            if in_place and dotted(node.func.value) in own:
                return True
    return False


def _are_bare(script: ScriptModel, node: ast.expr, optimizers: list[Entity]) -> bool:
    """Whether a name holds tensors that torch's functions make once, before the training, and no optimizer steps."""
    contained = script.values(node)
    for value in contained:
        if not isinstance(value, Entity) or value.kind not in (v.UNKNOWN, v.TENSOR):
            return False
        if not isinstance(value.site, ast.Call) or value.module not in script.modules:
            return False
        # `torch.zeros(1).requires_grad_()` is a tensor in addition to the `torch.zeros(1)` in it.
        if not (dotted(_first_call(value.site).func) or "").startswith("torch."):
            return False
        if script.trains_around(value.site):
            return False
        if any(script.trains_around(call) for call in script.callers(script.scope_of(value.site))):
            return False
    for optimizer in optimizers:
        assert isinstance(optimizer.site, ast.Call)
        given = call_argument(optimizer.site, 0, "params")
        named = [n for n in walk(given) if isinstance(n, ast.Name)] if given is not None else []
        if any(script.values(n) & contained for n in named):
            return False  # those of a prepared optimizer are averaged by the runtime
    return bool(contained)


def _first_call(call: ast.Call) -> ast.Call:
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return call


def _follows(script: ScriptModel, read: ast.Attribute, backward: ast.Call) -> ast.stmt | None:
    """The statement around a read that comes after a backward, in its block or in one around that."""
    tree = script.tree
    around = {a for a in tree.ancestors(read) if isinstance(a, ast.stmt)}
    stmt: ast.AST | None = tree.statement(backward)
    while isinstance(stmt, ast.stmt) and stmt not in around:
        block: list[ast.stmt] = tree.block_of(stmt)[2]
        if stmt in block:
            later = next((s for s in block[block.index(stmt) + 1 :] if s in around), None)
            if later is not None:
                return later
        stmt = tree.parent(stmt)
    return None


def _inside(script: ScriptModel, read: ast.Attribute, outer: ast.stmt | None) -> ast.stmt:
    """The statement to be before: `outer`, or the one in the loop that gives the tensor its name."""
    tree, name = script.tree, dotted(read.value)
    chain = [a for a in tree.ancestors(read) if isinstance(a, ast.stmt)]
    for index, stmt in enumerate(chain):
        if stmt is outer:
            break
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return chain[index - 1]
        above = chain[index + 1] if index + 1 < len(chain) else None
        if isinstance(above, ast.For) and any(
            isinstance(n, ast.Name) and n.id == name for n in walk(above.target)
        ):
            return stmt
    return outer or chain[0]


__all__ = ["UpdatedTensor", "runs_in", "tensors_updated_by_hand"]
