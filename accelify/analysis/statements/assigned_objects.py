"""What an assignment binds a name to: an object itself, one that comes trained, or a second name for reading only."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.holders import Holder
from accelify.analysis.interpretation.containers import within
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching_assignments import made_of
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Entity

# Methods of an optimizer that do not train.
_LOOKS = frozenset("param_groups defaults state state_dict __class__".split())


def gives(script: ScriptModel, stmt: ast.stmt, entity: Entity) -> bool:
    """Whether an assignment binds a name to the `Entity` itself: no other one of that name, no bar around a loader."""
    value = getattr(stmt, "value", None)
    if entity.kind == v.LOADER and isinstance(value, ast.Call):
        if k.is_progress(script.qualname(value.func) or ""):
            return False
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    if isinstance(value, ast.Tuple):
        return any(entity in script.entities(element) for element in value.elts)
    if not isinstance(value, ast.expr) or any(isinstance(t, (ast.Tuple, ast.List)) for t in targets):
        return True
    return entity in script.entities(value)


def hangs_on(script: ScriptModel, stmt: ast.stmt, name: str, entity: Entity) -> bool:
    """Whether a name among several is bound to parts of the `Entity`: `sample, density = model.draw, model.forward`."""
    value = getattr(stmt, "value", None)
    for target in stmt.targets if isinstance(stmt, ast.Assign) else []:
        if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
            continue
        for place, element in zip(target.elts, value.elts, strict=False):
            if dotted(place) == name:
                return isinstance(element, ast.Attribute) and entity in script.entities(element.value)
    return False


def entities_in(script: ScriptModel, argument: ast.expr) -> set[Entity]:
    """The `Entity` objects that an argument is, or that a container in it has."""
    found = script.entities(argument)
    for container in script.values(argument):
        found |= {w for w in within(container) if isinstance(w, Entity)}
    return found


def comes_trained(script: ScriptModel, stmt: ast.stmt, entity: Entity) -> bool:
    """Whether an assignment gets an `Entity` that a function has made and trained: `model = train(loader)`.

    It is prepared in there, before the training.
    """
    call = _call_of(stmt)
    if call is None or not script.callees(call) & script.training_scopes:
        return False
    given = [call.func, *call.args, *[kw.value for kw in call.keywords]]
    return not any(_is_handed(script, a, entity) for a in given)


def hands_through(script: ScriptModel, stmt: ast.stmt, entity: Entity) -> bool:
    """Whether an assignment gets an `Entity` from a function that it passes it to."""
    call = _call_of(stmt)
    given = [*call.args, *[kw.value for kw in call.keywords]] if call is not None else []
    return any(entity in entities_in(script, a) for a in given)


def is_looked_at(script: ScriptModel, holder: Holder, creations: list[ast.stmt]) -> bool:
    """Whether a second name for an attribute of an object is only read: `inner = self.optimizer.inner`.

    What steps is the object's, and prepared where that has it from.
    """
    if holder.scope is None or not all(
        isinstance(getattr(s, "value", None), ast.Attribute) for s in creations
    ):
        return False
    parents = [script.tree.parent(read) for read in script.reads(holder.name, holder.scope)]
    return all(isinstance(parent, ast.Attribute) and parent.attr in _LOOKS for parent in parents)


def _call_of(stmt: ast.stmt) -> ast.Call | None:
    value = getattr(stmt, "value", None)
    while isinstance(value, ast.Subscript):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def _is_handed(script: ScriptModel, argument: ast.expr, entity: Entity) -> bool:
    """Whether an argument can be an `Entity` already: in `model = run(model)` not what only `run` returns."""
    if entity not in entities_in(script, argument):
        return False
    scope = script.scope_of(argument)
    if not isinstance(argument, ast.Name) or scope.resolve(argument.id) is not scope:
        return True
    giving = [
        s
        for holder in script.holders_of(entity)
        if holder.name == argument.id and holder.scope is scope
        for s, _ in holder.assignments
        if gives(script, s, entity)
    ]
    before = made_of(script.tree, argument)
    return not giving or any(s in before for s in giving)
