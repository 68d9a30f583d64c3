"""What is in a statement that may change or pass on something, found once for all who ask of it."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import walk

Shaping = ast.Call | ast.Assign | ast.AugAssign


class StatementParts:
    """What a statement shapes and reads: each item that may be prepared asks every statement."""

    def __init__(self) -> None:
        self._shaping: dict[ast.stmt, list[Shaping]] = {}
        self._read: dict[ast.stmt, list[ast.Name | ast.Attribute]] = {}

    def shaping(self, stmt: ast.stmt) -> list[Shaping]:
        """The calls and the assignments to attributes in a statement: what may change something it does not bind."""
        found = self._shaping.get(stmt)
        if found is None:
            found = self._shaping[stmt] = [n for n in walk(stmt) if _may_shape(n)]
        return found

    def read(self, stmt: ast.stmt) -> list[ast.Name | ast.Attribute]:
        """The names and attributes that a statement reads."""
        found = self._read.get(stmt)
        if found is None:
            found = self._read[stmt] = [
                n
                for n in walk(stmt)
                if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
            ]
        return found


def _may_shape(node: ast.AST) -> bool:
    kind = type(node)
    if kind is ast.Call:
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Attribute) for target in node.targets)
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)
