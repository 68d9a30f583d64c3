"""Arguments that meet in functions of modules which are not converted: `accuracy_fn(y_true=y, y_pred=output)`."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, names_in, walk

# What moves a tensor, or takes one of another place.
_MOVING = frozenset("to cuda cpu type_as tolist item numpy".split())


def meeting_elsewhere(script: ScriptModel, call: ast.Call) -> list[ast.expr]:
    """The arguments of a call whose tensors have to be together in the functions that it runs elsewhere."""
    callees = script.callees(call)
    if not callees or any(script.interpreter.module_of(s) in script.modules for s in callees):
        return []
    found: list[ast.expr] = []
    for callee in callees:
        pairs = handed_to(call, callee)
        together = _meeting(callee, {name for _, name in pairs})
        if together is None:
            return []
        found += [a for a, name in pairs if name in together and a not in found]
    return found


def _meeting(callee: Scope, names: set[str]) -> set[str] | None:
    """The parameters that a function compares or computes with one another; None where it moves some of them."""
    found: set[str] = set()
    for node in callee.of_type(ast.Attribute, ast.BinOp, ast.Compare, ast.Call):
        if isinstance(node, ast.Attribute) and node.attr in _MOVING and _of(node.value, names):
            if node.attr in ("to", "cuda", "cpu", "type_as"):
                return None
        operands: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            operands = [node.left, node.right]
        elif isinstance(node, ast.Compare) and not any(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # A method of one of them, or a function of torch.
            operands = [node.func.value, *node.args, *[kw.value for kw in node.keywords]]
        sides = [side for side in (_of(o, names) for o in operands) if side]
        if len(sides) > 1:
            found.update(*sides)
    return found


def _of(node: ast.expr, names: set[str]) -> frozenset[str]:
    """The parameters whose tensors an expression is made of."""
    used = [n for n in walk(node) if isinstance(n, ast.Attribute)]
    if any(n.attr in ("shape", "size", "item", "tolist", "numpy", "dtype", "device") for n in used):
        return frozenset()
    calls = [n for n in calls_in(node) if isinstance(n.func, ast.Name)]
    if calls:
        return frozenset()  # len(y)
    return names_in(node) & names
