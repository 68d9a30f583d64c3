"""Learning rates that a script sets by hand, in functions of whatever module and in classes that keep the numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import dotted, walk

_NAMES = ("lr", "learning_rate", "cur_lr", "new_lr")
# A helper, the function by which it writes the rate, and a class around both.
_DEEPEST = 3


def is_learning_rate(target: ast.expr) -> bool:
    """Whether a learning rate is assigned: `group["lr"]`, `lr`."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return target.slice.value == "lr"
    return (dotted(target) or "").rpartition(".")[2].lower() in _NAMES


def handed_to_a_rate(interpreter: Interpreter, call: ast.Call, number: ast.expr) -> bool:
    """Whether a function computes a learning rate from a number that a call gives it, alone or in an argument."""
    return any(
        _sets(interpreter, callee, {parameter}, 0)
        for callee in interpreter.calls.get(call, ())
        for given, parameter in handed_to(call, callee)
        if any(n is number for n in walk(given))
    )


def _sets(interpreter: Interpreter, scope: Scope, known: set[str], far: int) -> bool:
    """Whether a function sets a learning rate from names and attributes; those computed from them count as well."""
    before = -1
    while before < len(known):
        before = len(known)
        for target, value in _assigned(scope):
            if _reads(value, known):
                if is_learning_rate(target):
                    return True
                known |= {name} if (name := dotted(target)) is not None else set()
    if far == _DEEPEST:
        return False
    for call in scope.calls:
        for callee in interpreter.calls.get(call, ()):
            given = {parameter for value, parameter in handed_to(call, callee) if _reads(value, known)}
            if given and _sets(interpreter, callee, given, far + 1):
                return True
    own = scope.self_name()
    retained = {name for name in known if own is not None and name.startswith(f"{own}.")}
    if not retained or scope.parent is None:
        return False
    methods = [m for m in scope.parent.children.values() if m is not scope and m.self_name() == own]
    return any(_sets(interpreter, method, set(retained), far + 1) for method in methods)


def _assigned(scope: Scope) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in scope.nodes:
        if isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                parts, values = getattr(target, "elts", []), getattr(node.value, "elts", [])
                if parts and len(parts) == len(values):
                    yield from zip(parts, values, strict=True)
                else:
                    yield target, node.value


def _reads(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) in names for n in walk(node))
