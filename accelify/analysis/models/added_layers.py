"""Models that get new layers after they were made, which a later move of the whole model brings to its device.

def grow(self):
    self.blocks.append(Block(self.size))    # or: self.head = nn.Linear(self.size, 10)

model.grow()
model.to(device)
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.models.filled_from_host import is_making
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, walk
from accelify.analysis.values import Class, Entity

_TAKING = frozenset({"append", "extend", "insert", "add_module", "register_module", "update"})


def grown_models(script: ScriptModel) -> set[Entity]:
    """The models with a method that gives them layers made there, and that is called when they are there already."""
    grows: dict[Class, bool] = {}
    found: set[Entity] = set()
    for entity in list(script.interpreter.entities.values()):  # asking adds to them
        if isinstance(entity, Entity) and entity.kind == v.MODEL and entity.cls is not None:
            if any(_grows(script, own, grows) for own in entity.cls.ancestry()):
                found.add(entity)
    return found


def _grows(script: ScriptModel, cls: Class, known: dict[Class, bool]) -> bool:
    if cls not in known:
        known[cls] = any(
            bool(script.interpreter.callers.get(method))
            and not is_making(script, method)
            and _adds_layers(script, cls.module, method)
            for method in cls.scope.children.values()
            if method.self_name() is not None
        )
    return known[cls]


def _adds_layers(script: ScriptModel, module: Module, method: Scope) -> bool:
    own = f"{method.self_name()}."
    for stmt in method.of_type(ast.Assign, ast.Expr):
        if isinstance(stmt, ast.Assign):
            retained = any((dotted(target) or "").startswith(own) for target in stmt.targets)
        else:
            called = stmt.value.func if isinstance(stmt.value, ast.Call) else None
            retained = isinstance(called, ast.Attribute) and called.attr in _TAKING
            retained = retained and (dotted(called) or "").startswith(own)
        if not retained:
            continue
        calls = calls_in(stmt.value)
        moves = (c.func for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in ("to", "cuda"))
        moved = {n for move in moves for n in walk(move.value)}
        if any(call not in moved and _is_made(script, module, method, call) for call in calls):
            return True
    return False


def _is_made(script: ScriptModel, module: Module, method: Scope, call: ast.Call) -> bool:
    return any(
        isinstance(contained, Entity) and contained.kind == v.MODEL and contained.site is call
        for contained in script.interpreter.evaluate(module, method, call)
    )
