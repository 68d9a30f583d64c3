"""Which expressions are plain numbers of Python: constants, options, sizes, and what is computed from these."""

from __future__ import annotations

import ast

from accelify.analysis.program import Module
from accelify.analysis.statements.assigned_values import ELEMENT, PART, Given, Place
from accelify.analysis.syntax import dotted

_OPTIONS = frozenset("args opt opts options config cfg conf hparams hps params FLAGS flags".split())
_CALLS = frozenset({"builtins.len", "builtins.int", "builtins.float", "builtins.round"})
_METHODS = frozenset({"item", "numel", "nelement", "dim"})
_FARTHEST = 8


class PlainNumbers:
    """Answers for a program whether an expression is a number, as far as that is sure.

    Args:
        given: what is assigned to places of the program.
    """

    def __init__(self, given: Given) -> None:
        self.given = given
        self._known: dict[Place, bool] = {}

    def has(self, node: ast.expr, module: Module, far: int = 0) -> bool:
        """Whether an expression is a number."""
        if far > _FARTHEST:
            return False
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.BinOp):
            return self.has(node.left, module, far + 1) and self.has(node.right, module, far + 1)
        if isinstance(node, ast.UnaryOp):
            return self.has(node.operand, module, far + 1)
        if isinstance(node, ast.Call):
            return self._call(node, module)
        if isinstance(node, ast.Subscript):
            sized = node.value.func if isinstance(node.value, ast.Call) else node.value
            return isinstance(sized, ast.Attribute) and sized.attr in ("shape", "size")
        if isinstance(node, ast.Attribute) and _OPTIONS & set((dotted(node.value) or "").split(".")):
            return True
        return isinstance(node, (ast.Name, ast.Attribute)) and self._variable(node, module, far)

    def _call(self, call: ast.Call, module: Module) -> bool:
        if isinstance(call.func, ast.Attribute):
            if call.func.attr in _METHODS and not call.args:
                return True
            if call.func.attr == "size" and len(call.args) == 1:
                return True
        name = self.given.imported_name(call.func, module)
        return name in _CALLS or name.startswith("math.")

    def _variable(self, node: ast.Name | ast.Attribute, module: Module, far: int) -> bool:
        place = self.given.place(node, module)
        if place is None:
            return False
        if place not in self._known:
            self._known[place] = False  # until it is known: `n = n + 1` alone makes none
            self._known[place] = self._given_numbers(place, node, module, far)
        return self._known[place]

    def _given_numbers(self, place: Place, node: ast.expr, module: Module, far: int) -> bool:
        gifts = self.given.given(node, module)
        if not gifts or self.given.is_parameter(place):
            return False
        return all(
            gift.how not in (PART, ELEMENT) and self.has(gift.value, gift.module, far + 1) for gift in gifts
        )


__all__ = ["PlainNumbers"]
