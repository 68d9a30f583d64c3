"""The same numbers again, in another type or place: what an object keeps of a batch by this is nothing.

self.mean = torch.from_numpy(self.mean).to(x.device)
"""

from __future__ import annotations

import ast

from accelify.analysis.syntax import assigned_pairs, dotted

_METHODS = frozenset(
    "to type type_as cuda cpu float double half bfloat16 numpy detach clone copy contiguous astype".split()
)
_FUNCTIONS = frozenset(
    "from_numpy as_tensor tensor Tensor FloatTensor DoubleTensor Variable asarray array".split()
)
_LIBRARIES = frozenset({"torch", "np", "numpy", "Variable", "autograd"})


def converts_itself(stmt: ast.AST | None) -> bool:
    """Whether a statement assigns nothing but what was there before, in another type or on another device."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    pairs = assigned_pairs(stmt.targets[0], stmt.value)
    return bool(pairs) and all(_is_converted(dotted(target), value) for target, value in pairs)


def _is_converted(wanted: str | None, value: ast.expr) -> bool:
    if wanted is None or not isinstance(value, ast.Call):
        return False
    func = dotted(value.func) or ""
    inner: ast.expr = value
    if value.args and func.partition(".")[0] in _LIBRARIES and func.rpartition(".")[2] in _FUNCTIONS:
        inner = value.args[0]
    elif isinstance(value.func, ast.Attribute) and value.func.attr in _METHODS:
        inner = value.func.value
    return inner is not value and (dotted(inner) == wanted or _is_converted(wanted, inner))


__all__ = ["converts_itself"]
