"""Which functions of the script loops run, directly or through others."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in


def run_by(script: ScriptModel, loops: Iterable[ast.For | ast.AsyncFor | ast.While]) -> set[Scope]:
    """The functions that the bodies of some loops reach, without those of modules that are not converted."""
    found: set[Scope] = set()
    queue = [n for loop in loops for s in loop.body for n in calls_in(s)]
    while queue:
        for callee in script.callees(queue.pop()):
            if callee not in found and is_of_script(script, callee):
                found.add(callee)
                queue += calls_in(callee.node)
    return found


def is_of_script(script: ScriptModel, scope: Scope) -> bool:
    """Whether a function is converted with the script."""
    return script.interpreter.module_of(scope) in script.modules
