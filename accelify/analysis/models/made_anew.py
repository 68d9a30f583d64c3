"""Functions that make another model, by the class of the model that they get.

def copied(net):
    twin = type(net)(net.config)    # of a wrapped model: of the wrapper's class
    twin.load_state_dict(net.state_dict())
    return twin
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


def made_anew(script: ScriptModel, function: Scope) -> set[str]:
    """The parameters of whose class a function makes an object, and that it does not run itself."""
    mentions = script.interpreter.module_of(function).tree.mentions
    if function.kind != "function" or not (mentions("type(") or mentions("__class__(")):
        return set()
    stated = {a.arg for a in function.parameters()} - {function.self_name()}
    made: set[str] = set()
    run: set[str] = set()
    for call in function.calls:
        func = call.func
        if isinstance(func, ast.Call) and dotted(func.func) == "type" and len(func.args) == 1:
            made.add(dotted(func.args[0]) or "")
        elif isinstance(func, ast.Attribute) and func.attr == "__class__":
            made.add(dotted(func.value) or "")
        elif isinstance(func, ast.Name):
            run.add(func.id)
    return (made & stated) - run
