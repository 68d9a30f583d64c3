"""Modules that get another part after the place where they are prepared."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.planning.sites import Item, PrepareSite
from accelify.analysis.script import ScriptModel

_FILLING = frozenset({"append", "extend", "insert", "add_module"})


def extended_after_prepare(script: ScriptModel, site: PrepareSite, item: Item) -> ast.Call | None:
    """Where a ModuleList or the like gets another part after it was prepared, None where it does not."""
    tree = script.tree
    for call in script.calls() if item.kind == v.MODEL and item.container is None else ():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in _FILLING:
            continue
        if script.scope_of(call) is site.scope and tree.is_after(call, site.after):
            if item.entities & script.models_of(func.value):
                return call
    return None
