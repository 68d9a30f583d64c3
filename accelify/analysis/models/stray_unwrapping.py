"""`.module` read off what the analysis cannot follow: `for net in self.nets.values(): net.module.state_dict()`.

Where the script's models lose their DataParallel, such a place may be about one of them: better named than missed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk
from accelify.analysis.values import Entity

_WORD = b".module."
# Who asks one of these of an object knows that it may be bare.
_ASKING = frozenset({"hasattr", "isinstance", "type", "getattr"})


def stray_unwrapping(
    script: ScriptModel, models: Set[Entity], known: Set[ast.AST]
) -> Iterator[tuple[Module, ast.Attribute]]:
    """Such reads in the program's modules, with the module of each.

    Args:
        script: its model.
        models: those that lose their wrapper; their reads in the script's modules are edited.
        known: the reads that are already reported or edited.
    """
    for module in dict.fromkeys([*script.modules, *script.program.modules.values()]):
        if not module.tree.mentions(_WORD) or _keeps_one(script, module):
            continue
        converted = module in script.modules
        for read in _nodes(script, module):
            if read.attr != "module" or not isinstance(read.ctx, ast.Load) or read in known:
                continue
            if not isinstance(
                module.tree.parent(read) if not converted else script.tree.parent(read), ast.Attribute
            ):
                continue
            if _is_unseen(script, module, read.value, set() if converted else models) and not _is_asked_for(
                script, module, read
            ):
                yield module, read


def _nodes(script: ScriptModel, module: Module) -> Iterator[ast.Attribute]:
    """The attributes of a module in functions that the program reaches."""
    for scope in module.used_scopes():
        if scope not in script.dormant:
            yield from scope.of_type(ast.Attribute)


def _keeps_one(script: ScriptModel, module: Module) -> bool:
    """Whether a file defines objects that store a value as `module`."""
    return any(
        node.attr == "module" and not isinstance(node.ctx, ast.Load) for node in _nodes(script, module)
    )


def _is_unseen(script: ScriptModel, module: Module, value: ast.expr, models: Set[Entity]) -> bool:
    """Whether nothing is known of a value, which is none of an import, but that it may be one of some models."""
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    scope = module.scopes.of(value) if module not in script.modules else script.scope_of(value)
    contained = script.interpreter.evaluate(module, scope, value)
    return all(isinstance(w, Entity) and (w.kind == v.UNKNOWN or w in models) for w in contained)


def _is_asked_for(script: ScriptModel, module: Module, read: ast.Attribute) -> bool:
    """Whether there is a test for the wrapper around the read, or the read may fail."""
    tree = script.tree if module in script.modules else module.tree
    for around in tree.ancestors(read):
        if isinstance(around, ast.Try):
            return True
        if isinstance(around, (ast.If, ast.IfExp)) and any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in _ASKING
            for n in walk(around.test)
        ):
            return True
    return False


__all__ = ["stray_unwrapping"]
