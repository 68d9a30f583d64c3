"""What a function returns for the constants that a call passes: of `if reduction == "sum"` the branch taken."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, hides_arguments
from accelify.analysis.values import Class

Constants = Mapping[str, object]


def constants_of(function: Scope, call: ast.Call | None) -> dict[str, object]:
    """The parameters of a function that are constants in a call: what it passes, or their defaults."""
    found = _defaults(function)
    if call is None:
        return found
    names = [n for n in function.positional() if n != function.self_name()]
    given: list[tuple[str, ast.expr]] = list(zip(names, call.args, strict=False))
    given += [(kw.arg, kw.value) for kw in call.keywords if kw.arg is not None]
    for name, value in given:
        if isinstance(value, ast.Constant):
            found[name] = value.value
        else:
            found.pop(name, None)
    if hides_arguments(call):
        return {}
    return found


def constants_of_object(cls: Class, made: ast.AST | None) -> dict[str, object]:
    """The attributes of an object that its constructor sets to constants it is made with: `self.reduction`."""
    init = cls.method("__init__")
    if init is None:
        return {}
    contained = constants_of(init[1], made if isinstance(made, ast.Call) else None)
    found: dict[str, object] = {}
    for stmt in init[1].node.body:
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
            target, value = dotted(stmt.targets[0]), stmt.value
            if target is not None and isinstance(value, ast.Name) and value.id in contained:
                found[target] = contained[value.id]
            elif target is not None and isinstance(value, ast.Constant):
                found[target] = value.value
    return found


def _defaults(function: Scope) -> dict[str, object]:
    return {a.arg: value.value for a, value in function.defaults() if isinstance(value, ast.Constant)}


def returned(body: list[ast.stmt], constants: Constants) -> Iterator[ast.expr]:
    """The values that a function's body can return, branches that the constants rule out left out."""
    for stmt in body:
        if isinstance(stmt, ast.Return) and stmt.value is not None:
            value = stmt.value
            while isinstance(value, ast.IfExp) and (taken := decided(value.test, constants)) is not None:
                value = value.body if taken else value.orelse
            yield value
        elif isinstance(stmt, ast.If):
            taken = decided(stmt.test, constants)
            if taken is not False:
                yield from returned(stmt.body, constants)
            if taken is not True:
                yield from returned(stmt.orelse, constants)
            way = stmt.body if taken else stmt.orelse if taken is False else []
            if way and isinstance(way[-1], (ast.Return, ast.Raise)):
                return
        elif not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from returned(getattr(stmt, part, []), constants)
            for handler in getattr(stmt, "handlers", []):
                yield from returned(handler.body, constants)


def decided(test: ast.expr, constants: Constants) -> bool | None:
    """Whether a test is true for these constants; None where they do not decide it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, constants)
        return None if inner is None else not inner
    name = dotted(test)
    if name is not None:
        return bool(constants[name]) if name in constants else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, op, right = dotted(test.left) or "", test.ops[0], test.comparators[0]
    if left not in constants:
        return None
    contained = constants[left]
    if isinstance(right, ast.Constant) and isinstance(op, (ast.Eq, ast.Is)):
        return contained == right.value
    if isinstance(right, ast.Constant) and isinstance(op, (ast.NotEq, ast.IsNot)):
        return contained != right.value
    if isinstance(right, (ast.Tuple, ast.List)) and isinstance(op, ast.In):
        if all(isinstance(one, ast.Constant) for one in right.elts):
            return any(contained == getattr(one, "value", None) for one in right.elts)
    return None
