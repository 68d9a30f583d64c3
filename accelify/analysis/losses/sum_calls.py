"""Calls and statements around losses, by what they sum or average."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted, is_constant, walk
from accelify.analysis.values import Entity

BATCH_SIZE = re.compile(r"batch_?size|^bs$|^bsz$|^n_samples$|num_samples|^n$|^N$", re.I)
# Divided by so many, a sum over the batch stays one.
CLASSES = re.compile(r"(?:^|[._])(?:n|num)_?class(?:es)?$|(?:^|\.)classes$", re.I)
PASSING = frozenset(
    "sum squeeze view float double to cuda clone clamp requires_grad_ item detach cpu numpy".split()
)
CURVES = frozenset("cosh exp log log10 log2 pow sqrt tanh".split())


class Place(NamedTuple):
    """The position of an expression."""

    module: Module
    scope: Scope


def stands_beside(tree: Tree, stmt: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement is in a block around a node, so that it runs whenever the node is reached."""
    block = tree.block_of(stmt)[2]
    return any(ancestor in block for ancestor in tree.ancestors(node))


def keeps_samples(call: ast.Call) -> bool:
    """`x.mean(dim=1)`: over another dimension than the first."""
    dims = [*call.args, *[kw.value for kw in call.keywords if kw.arg in ("dim", "axis")]]
    one = dims[0].value if len(dims) == 1 and isinstance(dims[0], ast.Constant) else None
    return isinstance(one, int) and one >= 1


def sums_samples(given: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    """Whether a sum goes over the first dimension, which is that of the samples: `sum(0)`, `sum(dim=(0, 2))`."""
    dims = [*given, *[kw.value for kw in keywords if kw.arg in ("dim", "axis")]]
    if len(dims) == 1 and isinstance(dims[0], (ast.Tuple, ast.List)):
        return any(is_constant(dim, 0) for dim in dims[0].elts)
    return len(dims) == 1 and is_constant(dims[0], 0)


def averages_all(call: ast.Call) -> bool:
    """`x.mean(0)`, `torch.mean(x, dim=0)`: over the samples, which are the first dimension."""
    name = str(dotted(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
    if name != "mean":
        return False
    dims = [*call.args[-1:], *[kw.value for kw in call.keywords if kw.arg in ("dim", "axis")]]
    return any(isinstance(one, ast.Constant) and one.value == 0 for one in dims)


def divides_by(value: ast.expr, name: str) -> bool:
    """`loss = loss / n` for an n that is no literal."""
    return (
        isinstance(value, ast.BinOp)
        and isinstance(value.op, ast.Div)
        and dotted(value.left) == name
        and not isinstance(value.right, ast.Constant)
    )


def is_averaged(node: ast.expr, place: Place) -> bool:
    """Whether an expression was averaged over the samples before: classes are left to sum over."""
    names = [n for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    parts = [node]
    for name in names:
        owner = place.scope.resolve(name.id)
        body = owner.node.body if owner is not None else []
        assigned = [one for stmt in body for one in place.module.tree.assigned_in(stmt, name.id)]
        parts += [stmt.value for stmt in assigned if isinstance(stmt, ast.Assign)]
    return any(isinstance(n, ast.Call) and averages_all(n) for part in parts for n in walk(part))


def lies_at_hand(script: ScriptModel, call: ast.Call, place: Place, criteria: list[Entity]) -> list[Entity]:
    """The criterion at a call, of several that cells of a notebook make one after the other under one name."""
    if len(criteria) < 2 or place.scope.kind != "module" or place.module not in script.modules:
        return criteria
    tree = script.tree
    before: list[tuple[ast.stmt, Entity]] = []
    for criterion in criteria:
        site = criterion.site
        if not isinstance(site, ast.Call) or tree.parent(site) is None:
            return criteria
        if not isinstance(tree.parent(tree.statement(site)), ast.Module):
            return criteria
        if tree.is_before(site, call):
            before.append((tree.statement(site), criterion))
    last = tree.last((stmt for stmt, _ in before))
    # `a() if test else b()` makes several in one statement.
    return [criterion for stmt, criterion in before if stmt is last] or criteria
