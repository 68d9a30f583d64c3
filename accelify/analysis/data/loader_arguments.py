"""The arguments of a loader, also those that callers of the functions around it pass, in any module.

def loader_of(data, last=True):
    return DataLoader(data, batch_size=8, drop_last=last)

def both(train, test):
    return loader_of(train), loader_of(test, last=False)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, hides_arguments
from accelify.analysis.values import Entity

# A helper of helpers of helpers: beyond this, what a name is stays open.
_DEEPEST = 3


def stated(script: ScriptModel, loader: Entity, argument: ast.expr | None) -> list[ast.expr | None]:
    """Everything that an argument of a loader's making can be: names, and None, represent what is not seen.

    Args:
        script: its model.
        loader: that is made in the function with the argument.
        argument: of the call that makes it, or of another one there.
    """
    if loader.module is None:
        return [argument]
    return list(_stated(script, loader.module, argument, loader.made_by, _DEEPEST))


def _stated(
    script: ScriptModel, module: Module, argument: ast.expr | None, made_by: tuple[ast.Call, ...], left: int
) -> Iterator[ast.expr | None]:
    """`made_by` are the calls that lead to it, from the function with the argument outwards."""
    if not isinstance(argument, ast.Name) or not left:
        yield argument
        return
    scope = script.scope_in(module, argument)
    if all(parameter.arg != argument.id for parameter in scope.parameters()):
        yield _assigned(script, module, scope, argument.id)
        return
    calls = _calls(script, scope, made_by)
    if not calls:
        yield argument
    for where, call in calls:
        given = _given(scope, call, argument.id)
        yield from (
            _stated(script, where, given, made_by[1:], left - 1)
            if given is not None
            else [_default(scope, call, argument.id)]
        )


def _calls(script: ScriptModel, scope: Scope, made_by: tuple[ast.Call, ...]) -> list[tuple[Module, ast.Call]]:
    """The calls of a function: the one that is known to lead to it, those of the script, or all there are."""
    every = script.interpreter.callers.get(scope, [])
    if made_by:
        return [(module, call) for module, call in every if call is made_by[0]]
    return [(module, call) for module, call in every if module in script.modules] or every


def _given(function: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """What a call of a function gives it for a parameter."""
    names = function.positional()[1 if function.self_name() is not None else 0 :]
    return call_argument(call, names.index(name), name) if name in names else call_keyword(call, name)


def _default(function: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """What a parameter has that a call gives nothing for; None where it may do so by a star."""
    if hides_arguments(call):
        return None
    return next((value for parameter, value in function.defaults() if parameter.arg == name), None)


def _assigned(script: ScriptModel, module: Module, scope: Scope, name: str) -> ast.expr | None:
    """What a variable is assigned, where that is once."""
    owner = scope.resolve(name)
    values = [s.value for s in module.tree.assigns(name) if script.scope_in(module, s).resolve(name) is owner]
    return values[0] if len(values) == 1 else None
