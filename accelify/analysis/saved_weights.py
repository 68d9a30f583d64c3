"""Where the weights of a model go into a file: here, or in a function of another module that is handed the model.

torch.save(model.state_dict(), path); save_checkpoint({"net": model.state_dict()}, path); utils.save_model(path, model)
"""

from __future__ import annotations

import ast

from accelify.analysis.effects import SideEffects
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import Thing

# How many functions lie between a model that is handed over and its weights at most.
_FAR = 3


def saves_weights(effects: SideEffects, call: ast.Call, models: set[Thing]) -> bool:
    """Whether a call takes the weights of one of some models to save them, names as they are, or has it done.

    Args:
        effects: what functions of the program do.
        call: a call of the script.
        models: the models.
    """
    script, func = effects.script, call.func
    if isinstance(func, ast.Attribute) and func.attr == "state_dict":
        if (dotted(func.value) or "").endswith(".module") or not script.models_of(func.value) & models:
            return False
        around = list(script.tree.ancestors(call))
        if any(isinstance(a, (ast.If, ast.IfExp)) and _has_bare_names(a, func) for a in around):
            return False
        if any(isinstance(a, ast.Dict) for a in around):
            return b"torch.save" in script.tree.data or any(_saves(effects, c) for c in script.calls())
        return any(isinstance(a, ast.Call) and _saves(effects, a) for a in around)
    return any(
        script.interpreter.module_of(callee) not in script.modules
        and any(
            isinstance(given, (ast.Name, ast.Attribute))
            and script.models_of(given) & models
            and _takes_weights(effects, callee, name)
            for given, name in handed_to(call, callee)
        )
        and _saves(effects, call)
        for callee in in_order(script.callees(call))
    )


def _has_bare_names(choice: ast.If | ast.IfExp, func: ast.Attribute) -> bool:
    """Whether the other way takes the weights of what a wrapper holds: their names were the same in both."""
    bare = f"{dotted(func.value)}.module.state_dict"
    ways = [w if isinstance(w, list) else [w] for w in (choice.body, choice.orelse)]
    return any(
        any(isinstance(n, ast.Attribute) and dotted(n) == bare for part in other for n in walk(part))
        for own, other in (ways, ways[::-1])
        if any(n is func for part in own for n in walk(part))
    )


def _saves(effects: SideEffects, call: ast.Call) -> bool:
    script = effects.script
    return script.qualname(call.func) == "torch.save" or any(
        site.name == "torch.save" for callee in script.callees(call) for site in effects.of(callee).sites
    )


def _takes_weights(effects: SideEffects, callee: Scope, name: str, far: int = _FAR) -> bool:
    """Whether a function asks what it is handed by a name for its `state_dict`, itself or in what it calls."""
    for node in callee.nodes:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name:
                return True
        for inner in effects.interpreter.calls.get(node, set()) if far else ():
            for given, own in handed_to(node, inner):
                if isinstance(given, ast.Name) and given.id == name:
                    if _takes_weights(effects, inner, own, far - 1):
                        return True
    return False


__all__ = ["saves_weights"]
