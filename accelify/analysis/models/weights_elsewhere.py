"""Functions of modules that are not converted which load weights from a file into a model argument.

workspace.py:   def load_parameters(path, net):
                    net.load_state_dict(torch.load(path)["state"])
train.py:       load_parameters(args.resume, model)     whose files have `module.` before the names, of a wrapped model
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from accelify.analysis.models.filled_keys import fills_own_names
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import Entity, Imported

_WORD = b"load_state_dict"


@dataclass(frozen=True, eq=False)
class WeightsElsewhere:
    """A call that passes such a function a model, the model, the function and where it loads."""

    call: ast.Call
    model: ast.expr
    callee: Scope
    module: Module
    site: ast.Call


def weights_elsewhere(script: ScriptModel, models: Set[Entity]) -> Iterator[WeightsElsewhere]:
    """The calls of a script that pass such a function one of some models."""
    others = {
        m for m in script.program.modules.values() if m not in script.modules and m.tree.mentions(_WORD)
    }
    for call in script.calls() if others and models else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module not in others:
                continue
            for argument, name in handed_to(call, callee):
                contained = script.models_of(argument)
                # One that may be another, which is never wrapped, is loaded from files without the prefix.
                if contained and contained <= models:
                    site = _loads_into(script, module, callee, name)
                    if site is not None:
                        yield WeightsElsewhere(call, argument, callee, module, site)


def _loads_into(script: ScriptModel, module: Module, callee: Scope, name: str) -> ast.Call | None:
    """Where a function loads a file's weights into a parameter, and minds no prefix of their names."""
    calls = callee.calls
    reads = any(
        isinstance(value, Imported) and value.name == "torch.load"
        for call in calls
        for value in script.interpreter.evaluate(module, callee, call.func)
    )
    minds = reads and any(
        (isinstance(n, ast.Constant) and isinstance(n.value, str) and "module" in n.value)
        # Of the wrapped model it loads the bare one.
        or (isinstance(n, ast.Attribute) and n.attr == "module" and dotted(n.value) == name)
        for n in walk(callee.node)
    )
    for call in calls if reads and not minds else ():
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "load_state_dict":
            if isinstance(func.value, ast.Name) and func.value.id == name:
                if not fills_own_names(callee, call, name):
                    return call
    return None


__all__ = ["WeightsElsewhere", "weights_elsewhere"]
