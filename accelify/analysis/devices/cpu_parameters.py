"""A setting for the CPU in a parameter for which all callers pass the same: `Net(sizes, use_cuda=False)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.devices.device_names import DeviceAssignment
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, hides_arguments


def given_wish(
    script: ScriptModel, wish: str, names: frozenset[str], assignments: Iterable[DeviceAssignment]
) -> bool | None:
    """What a setting is in every run, by what callers write for the parameter that it reads.

    Args:
        script: its model.
        wish: the text of the setting, a name or the opposite of one.
        names: what it reads.
        assignments: the choices of devices, among them those that the setting was read off.

    Returns:
        None where it is not seen, or differs.
    """
    name = wish.removeprefix("not ")
    if names != {name} or not name.isidentifier():
        return None
    reported: set[object] = set()
    for assignment in assignments:
        if assignment.cpu == wish:
            reported |= _given(script, script.scope_of(assignment.statement), name)
    if len(reported) != 1 or not isinstance(stated := reported.pop(), bool):
        return None
    return stated != wish.startswith("not ")


def _given(script: ScriptModel, scope: Scope, name: str) -> set[object]:
    """The constants that calls pass for a parameter of a function; None represents an argument that is no constant."""
    names = scope.positional()
    callers = script.callers(scope) if name in names else []
    bound = any(isinstance(n.ctx, ast.Store) for n in scope.of_type(ast.Name) if n.id == name)
    if not callers or bound or script.called_from_elsewhere(scope):
        return {None}
    default = next((d for a, d in scope.defaults() if a.arg == name), None)
    index = names.index(name) - (1 if scope.self_name() is not None else 0)
    found: set[object] = set()
    for call in callers:
        spread = hides_arguments(call)
        given = call_argument(call, index, name) or default
        found.add(given.value if isinstance(given, ast.Constant) and not spread else None)
    return found


__all__ = ["given_wish"]
