"""Tests whether a name is a tensor: after them it is what they have made of it, or was none all along.

if isinstance(x, torch.Tensor):
    x = x.cpu().numpy()
np.transpose(x)                    # an array, whatever the argument was
"""

from __future__ import annotations

import ast

from accelify.analysis.statements.always_bound import always_binds
from accelify.analysis.syntax import Tree, dotted

_TENSORS = frozenset({"torch.Tensor", "Tensor", "torch.autograd.Variable", "Variable"})
_ARRAYS = frozenset({"np.ndarray", "numpy.ndarray", "ndarray"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def tests_tensors(tree: Tree) -> bool:
    """Whether a script makes such a test at all."""
    return any(tree.mentions(word) for word in (b"isinstance(", b"is_tensor("))


def is_tensor_if(test: ast.expr, name: str) -> bool | None:
    """Whether a name holds a tensor where a test is true, and none where it is not, or the other way round.

    None where the test asks something else.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = is_tensor_if(test.operand, name)
        return None if inner is None else not inner
    if not isinstance(test, ast.Call) or not test.args or dotted(test.args[0]) != name:
        return None
    asked = dotted(test.func)
    if asked in ("torch.is_tensor", "is_tensor"):
        return True
    if asked != "isinstance" or len(test.args) != 2:
        return None
    kinds = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    names = {dotted(kind) for kind in kinds}
    if names & _TENSORS:
        return True
    return False if names <= _ARRAYS else None


def settles_tensor(stmt: ast.stmt, name: str) -> bool:
    """Whether a tensor of a name comes out of a statement as what it is bound to there, by a branch for tensors."""
    if always_binds(stmt, name):
        return True
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return any(settles_tensor(inner, name) for inner in stmt.body)
    asked = is_tensor_if(stmt.test, name) if isinstance(stmt, ast.If) else None
    if not isinstance(stmt, ast.If) or asked is None:
        return False
    return any(always_binds(inner, name) for inner in (stmt.body if asked else stmt.orelse))


def is_no_tensor(tree: Tree, node: ast.Name) -> bool:
    """Whether a name is read in the branch of a test in which it holds no tensor."""
    inner: ast.AST = node
    for ancestor in tree.ancestors(node):
        if isinstance(ancestor, _FUNCTIONS):
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)) and inner is not ancestor.test:
            asked = is_tensor_if(ancestor.test, node.id)
            if asked is not None:
                body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
                if asked is not (inner in body):
                    return not _is_bound_between(tree, ancestor, inner, node)
        inner = ancestor
    return False


def _is_bound_between(tree: Tree, around: ast.AST, block: ast.AST, node: ast.Name) -> bool:
    """Whether the branch binds the name again before it is read: to a tensor, maybe."""
    if not isinstance(around, ast.If):
        return False
    branch = around.body if block in around.body else around.orelse
    return any(
        isinstance(n, ast.Name)
        and n.id == node.id
        and isinstance(n.ctx, ast.Store)
        and tree.is_before(n, node)
        for stmt in branch[: branch.index(block) + 1]  # type: ignore[arg-type]
        for n in ast.walk(stmt)
    )
