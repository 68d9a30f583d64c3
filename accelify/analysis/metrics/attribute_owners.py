"""Whose attribute it is that a piece of code reads: `self.best` in a method, `trainer.best` elsewhere."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Class


def own_class(script: ScriptModel, node: ast.Attribute) -> ast.ClassDef | None:
    """The class whose attribute `self.x` is: of those that derive from each other, the one they all have."""
    scope = script.scope_of(node)
    if not isinstance(node.value, ast.Name):
        return None
    while scope.kind == "function" and scope.self_name() != node.value.id and scope.parent is not None:
        scope = scope.parent
    owner = scope.owner_class
    if owner is None or scope.self_name() != node.value.id:
        return None
    instance = script.interpreter.entities.get((script.scope_for(owner), "instance"))
    found = instance.cls if isinstance(instance, v.Entity) else None
    return (_farthest(found) or owner) if found is not None else owner


def class_of_object(script: ScriptModel, node: ast.Attribute) -> ast.ClassDef | None:
    """The class of the object whose attribute is read: `trainer.best`."""
    for entity in script.entities(node.value, v.INSTANCE, v.MODEL):
        if entity.cls is not None:
            return _farthest(entity.cls)
    return None


def _farthest(cls: Class) -> ast.ClassDef | None:
    nodes = [c.scope.node for c in cls.ancestry()]
    return next((n for n in reversed(nodes) if isinstance(n, ast.ClassDef)), None)
