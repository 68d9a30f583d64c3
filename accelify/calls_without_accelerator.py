"""Calls that stay without the Accelerator which their function takes now: in functions that only other scripts reach,
and where a module is run by itself.

class Agent:
    def __init__(self, accelerator, width): ...

    @classmethod
    def restored(cls, path):                # nobody calls it here; predictor.py does
        return cls(**torch.load(path))
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from accelify.analysis.planning.homes import init_of
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel


def calls_left(script: ScriptModel, threaded: Collection[Scope]) -> Iterator[tuple[Scope, Scope]]:
    """The functions of the converted modules that call, unchanged, what takes the Accelerator now: each with that.

    Args:
        script: the model of the files that are converted together.
        threaded: the functions and classes that take the Accelerator.
    """
    homes: dict[Scope, list[Scope]] = {}
    for scope in threaded:
        if scope.parent is not None and scope.parent.kind == "module":
            homes.setdefault(scope.parent, []).append(scope)
    for module, changed in homes.items():
        takes = {scope: init_of(script, scope) if scope.kind == "class" else scope for scope in changed}
        known = {call for one in takes.values() if one is not None for call in script.callers(one)}
        for home in (module, *_functions_of(module)):
            if home is not module and script.callers(home):
                continue
            left = next(
                (
                    called
                    for call in home.calls
                    if call not in known
                    if (called := _called(call, home, module)) in takes and called is not home
                ),
                None,
            )
            if left is not None:
                yield home, left


def _functions_of(module: Scope) -> Iterator[Scope]:
    """The functions at the top of a module, and the methods of its classes that are called without an object."""
    for scope in module.children.values():
        if scope.kind == "function":
            yield scope
        elif scope.kind == "class":
            yield from (s for s in scope.children.values() if s.is_method and not s.has_object)


def _called(call: ast.Call, home: Scope, module: Scope) -> Scope | None:
    """The function or class of the module itself that a call names: by its name, or as the class of a class method."""
    if not isinstance(call.func, ast.Name):
        return None
    if home.is_class_method and call.func.id == home.self_name():
        return home.parent
    if home.resolve(call.func.id) is not module:
        return None
    return next((s for node, s in module.children.items() if getattr(node, "name", "") == call.func.id), None)
