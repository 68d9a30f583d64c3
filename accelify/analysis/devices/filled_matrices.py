"""Matrices of every sample against every sample, which a loop fills by index.

n = x.shape[0]
scores = torch.zeros(n, n)
for j in range(n):
    scores[:, j] = (x * centres[j]).sum(1)
"""

from __future__ import annotations

import ast

from accelify.analysis.metrics.counts import shape_of, size_of
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, is_constant, walk

_MADE = frozenset("zeros ones empty full new_zeros new_ones new_empty".split())


def fills_by_pairs(scope: Scope, made: ast.Call) -> bool:
    """Whether a call makes a matrix of pairs of samples, which its function fills sample by sample."""
    if (dotted(made.func) or "").rpartition(".")[2] not in _MADE:
        return False
    shape = made.args[0].elts if made.args and isinstance(made.args[0], (ast.Tuple, ast.List)) else made.args
    sizes = [side.id if isinstance(side, ast.Name) else "" for side in shape]
    if len(sizes) < 2 or not sizes[0] or sizes[0] not in sizes[1:] or not counts_samples(scope, sizes[0]):
        return False
    names = {
        target.id
        for stmt in scope.of_type(ast.Assign)
        if any(n is made for n in walk(stmt.value))
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    return bool(names) and any(
        isinstance(loop, ast.For) and _goes_through(loop, sizes[0]) and _fills(loop, names)
        for loop in scope.nodes
    )


def counts_samples(scope: Scope, name: str) -> bool:
    """Whether a variable is the size of a first dimension: `n = x.size(0)`, `n, k = x.shape[:2]`."""
    for stmt in scope.of_type(ast.Assign):
        target, value = stmt.targets[0], stmt.value
        if isinstance(target, ast.Name) and target.id == name:
            return size_of(value) is not None
        first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else None
        if isinstance(first, ast.Name) and first.id == name:
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                from_start = value.slice.lower is None or is_constant(value.slice.lower, 0)
                value = value.value if from_start else target
            return shape_of(value) is not None
    return False


def _goes_through(loop: ast.For, size: str) -> bool:
    """`for j in range(n)`."""
    return (
        isinstance(loop.iter, ast.Call)
        and dotted(loop.iter.func) == "range"
        and isinstance(loop.iter.args[-1], ast.Name)
        and loop.iter.args[-1].id == size
        and isinstance(loop.target, ast.Name)
    )


def _fills(loop: ast.For, names: set[str]) -> bool:
    """Whether rounds write what is worked out of the sample of the round, and of others, at its place."""
    assert isinstance(loop.target, ast.Name)
    counter = loop.target.id
    for stmt in (n for s in loop.body for n in walk(s) if isinstance(n, ast.Assign)):
        target = stmt.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        if target.value.id not in names or not _mentions(target.slice, counter):
            continue
        # A part of the sample at hand with something that is not of this round alone.
        for pair in (n for n in walk(stmt.value) if isinstance(n, (ast.BinOp, ast.Call))):
            sides = [pair.left, pair.right] if isinstance(pair, ast.BinOp) else pair.args
            own = [side for side in sides if _is_of_round(side, counter)]
            others = [s for s in sides if not _is_of_round(s, counter) and not isinstance(s, ast.Constant)]
            if own and others:
                return True
    return False


def _is_of_round(node: ast.expr, counter: str) -> bool:
    """`centres[j]`."""
    return isinstance(node, ast.Subscript) and _mentions(node.slice, counter)


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(node))


def runs_in_forward(scope: Scope) -> bool:
    """Whether a method is its class's forward, or is called on the way from it."""
    owner = scope.owner_class
    home = scope.parent
    while home is not None and home.node is not owner:
        home = home.parent
    if owner is None or home is None:
        return False
    methods = {m.name.rsplit(".", 1)[-1]: m for m in home.children.values()}
    queue = [methods["forward"]] if "forward" in methods else []
    for method in queue:
        for node in method.nodes:
            name = dotted(node.func) if isinstance(node, ast.Call) else None
            own, _, called = (name or "").partition(".")
            inner = methods.get(called) if own == method.self_name() else None
            if inner is not None and inner not in queue:
                queue.append(inner)
    return scope in queue


__all__ = ["counts_samples", "fills_by_pairs", "runs_in_forward"]
