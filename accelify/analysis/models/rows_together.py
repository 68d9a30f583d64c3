"""Outputs with several rows a sample, which a statement after the model's call splits again: crops of a picture.

b, crops, c, h, w = x.size()
output = model(x.view(-1, c, h, w))                 # b * crops rows
mean = output.view(b, crops, -1).mean(1)            # b of them
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from accelify.analysis.syntax import Tree, call_argument, is_constant, names_in, target_names, text_of, walk

_SHAPING = frozenset({"view", "reshape"})
# What takes several values along a dimension together, or changes them along it.
_ALONG = frozenset("mean sum max min prod median softmax log_softmax amax amin logsumexp argmax topk".split())
_PAIRS = frozenset("max min median topk".split())
_SAME_ROWS = frozenset("data detach cpu cuda float double half contiguous to clone".split())


def takes_rows_together(call: ast.Call, before: Sequence[ast.stmt]) -> bool:
    """Whether the model's input has the rows of all samples in its first dimension: `x.view(-1, c, h, w)`.

    Args:
        call: of the model.
        before: the statements of the loop up to it.
    """
    for given in call.args:
        names = names_in(given)
        values = [given]
        values += [
            s.value
            for s in before
            if isinstance(s, ast.Assign) and names & {n for t in s.targets for n in target_names(t)}
        ]
        if any(_is_flattened(node) for value in values for node in walk(value)):
            return True
    return False


def _is_flattened(node: ast.AST) -> bool:
    """`x.view(-1, c, h, w)` and `x.flatten(0, 1)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 2:
        return False
    if node.func.attr in _SHAPING:
        return isinstance(node.args[0], ast.UnaryOp) and text_of(node.args[0]) == "-1"
    return node.func.attr == "flatten" and is_constant(node.args[0], 0)


def parted_again(
    tree: Tree, statements: Sequence[ast.stmt], index: int, is_size: Callable[[ast.expr], bool]
) -> int | None:
    """The statement that splits the output of a model into a row for each sample again; None where none is found.

    Args:
        tree: the script's.
        statements: of the loop.
        index: of the one that calls the model, and gives its output a name.
        is_size: whether an expression is the number of samples in the batch.
    """
    called = statements[index]
    targets = called.targets if isinstance(called, ast.Assign) else []
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return None
    name, found = targets[0].id, None
    for place, stmt in enumerate(statements[index + 1 :], index + 1):
        reads = [n for n in walk(stmt) if isinstance(n, ast.Name) and n.id == name]
        if not reads:
            continue
        if found is not None or len([n for n in reads if isinstance(n.ctx, ast.Load)]) != 1:
            return None
        if not isinstance(stmt, ast.Assign) or not _has_rows_of(tree, stmt, reads, is_size):
            return None
        found = place
        if any(isinstance(n.ctx, ast.Store) for n in reads):
            break  # by the same name: `output = output.view(b, crops, -1).mean(1)`
    return found


def _has_rows_of(
    tree: Tree, stmt: ast.Assign, reads: list[ast.Name], is_size: Callable[[ast.expr], bool]
) -> bool:
    """Whether a statement shapes an output to a row for each sample, and takes nothing of different ones together."""
    read = next(n for n in reads if isinstance(n.ctx, ast.Load))
    method = tree.parent(read)
    shaped = tree.parent(method) if isinstance(method, ast.Attribute) else None
    if (
        not isinstance(shaped, ast.Call)
        or not isinstance(shaped.func, ast.Attribute)
        or shaped.func is not method
        or shaped.func.attr not in _SHAPING
        or len(shaped.args) < 2
        or not is_size(shaped.args[0])
    ):
        return False
    node: ast.AST = shaped
    while node is not stmt.value:
        outer = _within_samples(tree, node)
        if outer is None:
            return False
        node = outer
    return True


def _within_samples(tree: Tree, node: ast.AST) -> ast.AST | None:
    """The expression around one that works on each sample by itself; None where it may not."""
    parent = tree.parent(node)
    if isinstance(parent, ast.Attribute):
        call = tree.parent(parent)
        if not isinstance(call, ast.Call) or call.func is not parent:
            return parent if parent.attr in _SAME_ROWS else None
        dimension = call_argument(call, 1 if parent.attr == "topk" else 0, "dim")
        along = parent.attr in _ALONG and _is_inner(dimension)
        return call if along or parent.attr in _SAME_ROWS else None
    if isinstance(parent, ast.Call) and parent.args[:1] == [node] and isinstance(parent.func, ast.Attribute):
        dimension = call_argument(parent, 2 if parent.func.attr == "topk" else 1, "dim")
        return parent if parent.func.attr in _ALONG and _is_inner(dimension) else None
    if isinstance(parent, ast.Subscript) and isinstance(node, ast.Call):
        last = getattr(node.func, "attr", "")
        return parent if last in _PAIRS and isinstance(parent.slice, ast.Constant) else None
    return None


def _is_inner(dimension: ast.expr | None) -> bool:
    """Whether there is a dimension argument, and it is not the first dimension."""
    return is_constant(dimension, 1, 2, 3) or (dimension is not None and text_of(dimension) == "-1")
