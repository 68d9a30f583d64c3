"""Functions of other modules that a script never reaches, although the program calls them somewhere.

config.py:  def get_generator(model):           nobody calls it but another script
                return Generator(model)         so that nothing makes a Generator, and nothing runs its methods
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.modules.reached import looks_up_functions, mentioned_names
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Class, Entity

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel


def left_to_others(script: ScriptModel) -> set[Scope]:
    """Functions at the top of other modules that nobody calls or names, and what only these reach.

    Of classes it is their methods, where only such functions make objects of them. Where functions are looked up by a
    name that is put together, nobody knows.
    """
    others = [m for m in script.program.modules.values() if m is not script.module]
    if looks_up_functions(script):
        return set()
    mentioned = mentioned_names(script)
    callers = script.interpreter.callers
    waiting = [
        scope
        for module in others
        for scope in module.scopes.module.children.values()
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if not scope.node.decorator_list and scope.node.name not in mentioned
    ]
    makers = _makers(script, mentioned)
    found: set[Scope] = set()
    known = -1
    while known < len(found):
        known = len(found)
        for scope in waiting:
            if scope not in found and all(m.scopes.of(call) in found for m, call in callers.get(scope, [])):
                found.add(scope)
        for cls, places in makers.items():
            if places <= found:
                found.update(s for s in cls.children.values() if s.kind == "function")
    return found


def _makers(script: ScriptModel, mentioned: set[str]) -> dict[Scope, set[Scope]]:
    """The classes of which all objects are seen to be made, each with the functions that make them."""
    found: dict[Scope, set[Scope]] = {}
    unsure: set[Scope] = set()
    for value in list(script.interpreter.entities.values()):
        if isinstance(value, Class):
            assert isinstance(value.scope.node, ast.ClassDef)
            if value.name in mentioned or value.scope.node.decorator_list:
                unsure.update(one.scope for one in value.ancestry())
        elif isinstance(value, Entity) and value.cls is not None and isinstance(value.site, ast.Call):
            for one in value.cls.ancestry():
                if value.module is None:
                    unsure.add(one.scope)
                else:
                    found.setdefault(one.scope, set()).add(value.module.scopes.of(value.site))
    return {scope: places for scope, places in found.items() if scope not in unsure}
