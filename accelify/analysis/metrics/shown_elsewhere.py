"""Figures that a function of a module which is not converted prints, draws or writes: `curves(history)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, target_names

# Calls that show their arguments, by their last name.
OUTPUTS = frozenset(
    "print info debug warning error critical log write writerow writerows writelines dump add_scalar add_scalars "
    "add_histogram scalar_summary add_text line savetxt save savez plot echo".split()
)
# Calls whose result does not depend on the values in their argument.
_OF_FORM = frozenset({"len", "range", "type", "isinstance", "hasattr", "callable", "id"})
_FORM = frozenset({"shape", "size", "dtype", "device", "ndim", "keys"})
_ROUNDS = 3


def shows(script: ScriptModel, scope: Scope, name: str, far: int = 2) -> bool:
    """Whether a function shows a parameter, itself or by a function that it calls.

    Args:
        script: its model.
        scope: of the function.
        name: of the parameter.
        far: how many calls are followed from it.
    """
    known = {name}
    for _ in range(_ROUNDS):
        before = len(known)
        for stmt in scope.nodes:
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                if _holds(stmt.value, known):
                    known |= {n for t in targets for n in target_names(t)}
            elif isinstance(stmt, (ast.For, ast.AsyncFor)) and _holds(stmt.iter, known):
                known |= set(target_names(stmt.target))
        if len(known) == before:
            break
    for call in scope.calls:
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if not any(_holds(a, known) for a in given):
            continue
        callees = script.callees(call)
        last = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if last in OUTPUTS and not callees:
            return True
        for callee in callees if far else ():
            taken = [p for p in _parameters(callee) if _holds(_given(call, callee, p), known)]
            if any(shows(script, callee, p, far - 1) for p in taken):
                return True
    return False


def _parameters(scope: Scope) -> list[str]:
    return scope.positional()[1 if scope.self_name() is not None else 0 :]


def _given(call: ast.Call, scope: Scope, name: str) -> ast.expr | None:
    return call_argument(call, _parameters(scope).index(name), name)


def _holds(node: ast.AST | None, names: set[str]) -> bool:
    return node is not None and any(isinstance(n, ast.Name) and n.id in names for n in _values(node))


def _values(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression, what only asks for a size or a kind left out."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OF_FORM:
        return
    if isinstance(node, ast.Attribute) and node.attr in _FORM:
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _values(child)
