"""The setting for the CPU by which a base class of another module chooses a device in its constructor."""

from __future__ import annotations

import ast

from accelify.analysis.devices.class_devices import own_devices
from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import call_argument, dotted


def wish_of_base_class(script: ScriptModel) -> tuple[str, frozenset[str]] | None:
    """The setting for the CPU that a base class reads off what its subclass passes to its constructor.

    `self.device = "cuda:0" if config.use_GPU else "cpu"` there is `not config.use_GPU` here.
    """
    for call in script.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
            continue
        for callee in script.callees(call):
            if script.interpreter.module_of(callee) in script.modules:
                continue
            for _, value in own_devices(callee.node):
                if isinstance(value, ast.IfExp) and names_cpu(value.orelse):
                    found = _handed_over(script, call, callee, value.test)
                    if found is not None:
                        return found
    return None


def _handed_over(
    script: ScriptModel, call: ast.Call, callee: Scope, test: ast.expr
) -> tuple[str, frozenset[str]] | None:
    """A flag of a parameter as it is written where the constructor is called."""
    text = dotted(test)
    if text is None:
        return None
    head, dot, rest = text.partition(".")
    names = callee.positional()[1:]
    if head not in names:
        return None
    through_class = not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call))
    given = call_argument(call, names.index(head) + through_class, head)
    if not isinstance(given, ast.Name) or script.scope_of(given).resolve(given.id) is None:
        return None
    return negated(f"{given.id}{dot}{rest}"), frozenset({given.id})
