"""Samples that are drawn again whenever one is taken: `data[0]` of a data set with noise or random crops."""

from __future__ import annotations

import ast

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk


def draws_samples(script: ScriptModel, effects: SideEffects, node: ast.AST) -> str:
    """Why all processes have to take the samples that a node takes by their places; "" where one may.

    Args:
        script: its model.
        effects: what its functions do besides what they give.
        node: any part of it.
    """
    for read in (n for n in walk(node) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)):
        for entity in script.entities(read.value):
            method = entity.cls.method("__getitem__") if entity.cls is not None else None
            if method is not None and (reason := effects.of(method[1]).tied):
                return reason
    return ""
