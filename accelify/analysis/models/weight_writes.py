"""Statements that change a model by hand: a weight that is written in place, a model that a function cuts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted

_WEIGHT = re.compile(r"(^|_)(weight|bias)s?(_|$)")


def weight_write(script: ScriptModel, node: ast.AST) -> tuple[ast.expr, list[ast.expr]] | None:
    """The weight of a model that a node writes in place, and what decides the place and the value."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, deciding = node.targets[0], [node.value]
    elif isinstance(node, ast.AugAssign):
        target, deciding = node.target, [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not node.func.attr.endswith("_") or node.func.attr.endswith("__"):
            return None
        target, deciding = node.func.value, [*node.args, *[kw.value for kw in node.keywords]]
    else:
        return None
    written = weight_of(target)
    if written is None:
        return None
    deciding += [n.slice for n in ast.walk(target) if isinstance(n, ast.Subscript)]
    holder: ast.expr = written.value
    while not script.models_of(holder):
        if not isinstance(holder, (ast.Attribute, ast.Subscript)):
            return None
        holder = holder.value
    return target, deciding


def weight_of(target: ast.expr) -> ast.Attribute | None:
    """`layer.weight` of `layer.weight.data[i]`."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    return target if isinstance(target, ast.Attribute) and _WEIGHT.search(target.attr) else None


def model_changes(script: ScriptModel) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """What of a model is changed by hand, and what decides how: a weight, or all of it in `model = cut(model, i)`."""
    for node in script.tree.nodes(ast.Assign, ast.AugAssign, ast.Call):
        written = weight_write(script, node)
        if written is not None:
            yield written
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            target, call = node.targets[0], node.value
            given = [*call.args, *[kw.value for kw in call.keywords]]
            models = [a for a in given if dotted(a) is not None and dotted(a) == dotted(target)]
            if models and script.models_of(models[0]) and not script.trains(call):
                yield call, [a for a in given if a not in models]
