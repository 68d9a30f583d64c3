"""Variables of a module that a function may give another value: nothing reads them before it does."""

from __future__ import annotations

import ast

from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel


def is_read_only_after(script: ScriptModel, name: ast.Name, function: Scope, anchor: Anchor) -> bool:
    """Whether a variable of a module, set once there, is read only after a place in a function of the same module.

    Args:
        script: the script.
        name: where the variable gets its value.
        function: the function that gives it another one.
        anchor: where the function does so.
    """
    module = script.scope_of(name)
    if module.kind != "module" or function.kind != "function" or function.resolve(name.id) is not module:
        return False
    writes = [n for n in script.tree.writes(name.id) if script.scope_of(n).resolve(name.id) is module]
    if len(writes) > 1 or name.id in function.globals or _is_known_elsewhere(script, name.id):
        return False
    return all(_is_after(script, read, function, anchor) for read in script.reads(name.id, module))


def _is_after(
    script: ScriptModel, node: ast.AST, function: Scope, anchor: Anchor, seen: frozenset[Scope] = frozenset()
) -> bool:
    scope = script.scope_of(node)
    if scope is function:
        return not anchor.is_after(script.tree, node)
    if scope.kind != "function" or scope in seen or script.called_from_elsewhere(scope):
        return False
    calls = script.callers(scope)
    return bool(calls) and all(_is_after(script, call, function, anchor, seen | {scope}) for call in calls)


def _is_known_elsewhere(script: ScriptModel, name: str) -> bool:
    """Whether another module of the program may import the variable: its copy does not change."""
    others = [m for m in script.program.modules.values() if m not in script.modules]
    return (
        any(module.tree.mentions(name.encode()) for module in others)
        or any(alias.name == name for node in script.tree.nodes(ast.ImportFrom) for alias in node.names)
        or any(node.attr == name for node in script.tree.nodes(ast.Attribute))
    )
