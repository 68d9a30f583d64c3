"""Models that would be trained without being prepared."""

from __future__ import annotations

import ast
from collections.abc import Set

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Entity


def left_unprepared(script: ScriptModel, prepared: Set[Entity]) -> Entity | None:
    """A model that a prepared optimizer trains and that is not prepared itself: its gradients would stay local."""
    for optimizer in sorted((one for one in prepared if one.kind == v.OPTIMIZER), key=Entity.place):
        for model in sorted(optimizer.link("models"), key=Entity.place):
            if model.kind != v.MODEL or isinstance(model.site, ast.ClassDef) or model in prepared:
                continue
            if not script.outermost({model}) & prepared:
                return model
    return None
