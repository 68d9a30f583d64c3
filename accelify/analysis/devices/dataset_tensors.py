"""Tensors that a script makes for its data sets: they come to the model in batches alone, which prepare places."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.script import ScriptModel

# A loader goes over what it is given as over a data set.
_DATA_SETS = k.LOADER_CLASSES | {"torch.utils.data.TensorDataset", "torch.utils.data.StackDataset"}


def goes_to_data_sets(script: ScriptModel, made: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a value reaches nothing but data sets and loaders: as their argument, or by names that do.

    Args:
        script: the script that makes it.
        made: where it is made, or read.
        seen: names that were asked for already.
    """
    tree = script.tree
    statement = tree.statement(made)
    for node in tree.ancestors(made):
        if isinstance(node, ast.Call) and script.qualname(node.func) in _DATA_SETS:
            return True
        if node is statement:
            break
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return False
    name = _named(statement, made)
    if name is None:
        return False
    if name in seen:
        return True
    reads = [one for one in tree.nodes(ast.Name) if one.id == name and isinstance(one.ctx, ast.Load)]
    reads = [one for one in reads if not _is_loops_own(script, one)]
    return bool(reads) and all(goes_to_data_sets(script, one, seen | {name}) for one in reads)


def _named(statement: ast.Assign | ast.AugAssign | ast.AnnAssign, made: ast.AST) -> str | None:
    """The name that gets a value, alone or at its place among others: `inputs, labels = randn(64, 4), rand(64)`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) != 1:
        return None
    target, value = targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for to, part in zip(target.elts, value.elts, strict=False):
            if made in ast.walk(part):
                target = to
    return target.id if isinstance(target, ast.Name) else None


def _is_loops_own(script: ScriptModel, read: ast.Name) -> bool:
    """Whether a name is read in a loop that gives it another value in each round."""
    inside: ast.AST = read
    for node in script.tree.ancestors(read):
        if isinstance(node, ast.For) and inside is not node.iter:
            if any(isinstance(one, ast.Name) and one.id == read.id for one in ast.walk(node.target)):
                return True
        inside = node
    return False
