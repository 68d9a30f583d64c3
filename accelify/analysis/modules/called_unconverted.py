"""Functions of modules that are not converted, to which calls of the script come: directly, or through one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.metrics.stored_state import class_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel

# What a loader calls of a data set that the script makes.
_OF_DATA = ("__getitem__", "__iter__")


def come_to(script: ScriptModel, *words: bytes) -> Iterator[tuple[ast.Call, Module, Scope]]:
    """Each such function once, with its module and the first call of the script that reaches it.

    Args:
        script: its model.
        words: only modules whose source contains one of these.
    """
    apart = [m for m in script.program.modules.values() if m not in script.modules]
    wanted = {m for m in apart if any(m.tree.mentions(word) for word in words)}
    if not wanted:
        return
    seen: set[Scope] = set()
    for call in script.tree.in_order(script.calls()):
        ahead = in_order(script.callees(call))
        while ahead:
            scope = ahead.pop()
            module = script.interpreter.module_of(scope)
            if scope in seen or module in script.modules:
                continue
            seen.add(scope)
            if module in wanted:
                yield call, module, scope
            for node in scope.nodes:
                if isinstance(node, ast.Call):
                    ahead += in_order(script.interpreter.calls.get(node, set()))
            owner = class_of(scope) if scope.name.endswith("__init__") else None
            if owner is not None:
                methods = owner.children.values()
                ahead += [one for one in methods if one.name.rpartition(".")[2] in _OF_DATA]
