"""What a model stores of the current batch, and returns when it is asked: `model.kl`, `model.latest_losses()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.interpretation.torch_calls import TENSOR_KINDS
from accelify.analysis.models.alternatives import classes_of
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, walk
from accelify.analysis.values import Class, Entity


def batch_attributes(script: ScriptModel) -> list[ast.expr]:
    """The reads, outside of a model, of attributes that its methods compute from their tensor arguments."""
    retained = {
        cls: names
        for cls in script.interpreter.classes()
        if script.interpreter.kind_of_class(cls) == v.MODEL and (names := set(_stored(script, cls)))
    }
    every = {name for names in retained.values() for name in names}
    if not every:
        return []
    found: list[ast.expr] = []
    for node in script.tree.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            continue
        call = script.tree.parent(node)
        stated = isinstance(call, ast.Call) and call.func is node and not call.args and not call.keywords
        if node.attr not in every and not stated:
            continue
        classes = {c for t in script.models_of(node.value) for one in classes_of(t) for c in one.ancestry()}
        own = classes & set(retained)
        if stated and isinstance(call, ast.Call):
            if any(_tells(callee, retained[cls]) for cls in own for callee in _methods(cls, node.attr)):
                found.append(call)
        elif any(node.attr in retained[cls] for cls in own):
            found.append(node)
    return found


def _stored(script: ScriptModel, cls: Class) -> Iterator[str]:
    """The attributes that methods of a class compute from their arguments, where these are made from a batch."""
    for method in cls.scope.children.values():
        own = method.self_name()
        if method.kind != "function" or own is None or method.name.endswith("__init__"):
            continue
        for node in method.nodes:
            if not isinstance(node, ast.Assign):
                continue
            names = [t.attr for t in node.targets if isinstance(t, ast.Attribute) and dotted(t.value) == own]
            if names and names_in(node.value) - {own}:
                contained = script.interpreter.evaluate(cls.module, method, node.value)
                if any(isinstance(w, Entity) and w.kind in TENSOR_KINDS for w in contained):
                    yield from names


def _methods(cls: Class, name: str) -> list[Scope]:
    return [s for s in cls.scope.children.values() if s.name.rpartition(".")[2] == name]


def _tells(method: Scope, retained: set[str]) -> bool:
    """Whether a method returns what is stored of a batch."""
    own = method.self_name()
    return any(
        isinstance(n, ast.Attribute) and n.attr in retained and dotted(n.value) == own
        for stmt in method.of_type(ast.Return)
        if stmt.value is not None
        for n in walk(stmt.value)
    )
