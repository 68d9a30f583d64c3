"""Which argument of a call is which parameter of the function that it runs."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope


def argument_for(call: ast.Call, scope: Scope, name: str) -> ast.expr | None:
    """The argument by which a call gives a function one of its parameters; None where it gives none."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = scope.positional()[1 if scope.self_name() is not None else 0 :]
    index = positional.index(name) if name in positional else len(call.args)
    return call.args[index] if index < len(call.args) else None


def parameters_for(call: ast.Call, callee: Scope, child: ast.AST) -> list[str]:
    """The parameters of a function that an argument of a call can be: several where it is starred."""
    if isinstance(child, ast.keyword):
        return [child.arg] if child.arg is not None else []
    positional = callee.positional()[1 if callee.self_name() is not None else 0 :]
    for index, argument in enumerate(call.args):
        if argument is child:
            if isinstance(argument, ast.Starred):
                return positional[index:]
            return positional[index : index + 1]
    return []


__all__ = ["argument_for", "parameters_for"]
