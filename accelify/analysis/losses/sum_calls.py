"""Calls and statements around losses, by what they sum or average."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from accelify.analysis.syntax import Tree, dotted, is_constant

BATCH_SIZE = re.compile(r"batch_?size|^bs$|^bsz$|^n_samples$|num_samples|^n$|^N$", re.I)
# Divided by so many, a sum over the batch stays one.
CLASSES = re.compile(r"(?:^|[._])(?:n|num)_?class(?:es)?$|(?:^|\.)classes$", re.I)
PASSING = frozenset(
    "sum squeeze view float double to cuda clone clamp requires_grad_ item detach cpu numpy".split()
)
CURVES = frozenset("cosh exp log log10 log2 pow sqrt tanh".split())


def stands_beside(tree: Tree, stmt: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement stands in a block around a node, so that it runs whenever the node is come to."""
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
