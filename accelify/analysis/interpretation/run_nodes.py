"""The nodes of a program that an interpreter runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope

DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
INTERESTING = frozenset(
    {
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.For,
        ast.AsyncFor,
        ast.comprehension,
        ast.With,
        ast.AsyncWith,
        ast.Return,
        ast.Yield,
        ast.YieldFrom,
        ast.NamedExpr,
        ast.ClassDef,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.Call,
    }
)


def given_results(work: Iterable[tuple[Module, Scope, list[ast.AST]]]) -> set[str]:
    """The attributes that are assigned the result of a call."""
    return {
        node.attr
        for _, _, nodes in work
        for stmt in nodes
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call)
        for target in stmt.targets
        for node in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(node, ast.Attribute)
    }
