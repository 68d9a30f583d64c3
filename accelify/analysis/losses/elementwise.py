"""What is computed entry by entry: where the result has one element, so has each tensor that it is made of."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k

_OF_TWO = frozenset("add sub mul div divide multiply true_divide".split())
_OF_ONE = frozenset("neg exp log sqrt pow abs clamp sigmoid tanh relu log10 log2 square squeeze".split())
# What changes where a tensor is, its type, or nothing.
_CARRIED = frozenset("float double half cuda cpu to type detach clone contiguous requires_grad_".split())


def operands(node: ast.expr, library_name: str) -> list[ast.expr] | None:
    """The expressions that one is made of entry by entry; None where it is made in another way.

    Args:
        node: the expression.
        library_name: of what it calls, where it is a call of a library; else "".
    """
    if isinstance(node, ast.BinOp):
        return None if isinstance(node.op, ast.MatMult) else [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, (ast.USub, ast.UAdd)) else None
    if isinstance(node, ast.Attribute):
        return [node.value] if node.attr == "data" else None
    if not isinstance(node, ast.Call):
        return None
    if library_name:
        return _of_library(node, library_name)
    return _of_method(node) if isinstance(node.func, ast.Attribute) else None


def _of_library(call: ast.Call, name: str) -> list[ast.expr] | None:
    head, _, last = name.rpartition(".")
    if name in k.VARIABLE or name == "builtins.float":
        return call.args[:1] or None
    if name == "builtins.sum" and len(call.args) == 1 and isinstance(call.args[0], (ast.List, ast.Tuple)):
        return call.args[0].elts
    if head not in ("torch", "torch.nn.functional"):
        return None
    if last in _OF_TWO:
        return call.args[:2] or None
    return call.args[:1] or None if last in _OF_ONE else None


def _of_method(call: ast.Call) -> list[ast.expr] | None:
    assert isinstance(call.func, ast.Attribute)
    last, receiver = call.func.attr, call.func.value
    plain = last.removesuffix("_")
    if plain in _OF_TWO:
        return [receiver, *call.args[:1]]
    return [receiver] if plain in _OF_ONE or last in _CARRIED else None
