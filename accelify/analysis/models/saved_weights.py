"""Where a model or its weights are written to a file: here, or in a function of another module that gets the model.

torch.save(model.state_dict(), path); save_checkpoint({"net": model.state_dict()}, path); utils.save_model(path, model)
torch.save({"net": model}, path)  # whole
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, walk
from accelify.analysis.values import Entity

# How many functions there can be between a model argument and the use of its weights.
_FAR = 3


def saves_weights(effects: SideEffects, call: ast.Call, models: set[Entity]) -> bool:
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
            return script.tree.mentions(b"torch.save") or any(_saves(effects, c) for c in script.calls())
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


def saved_paths(script: ScriptModel) -> set[str]:
    """The texts that are in the paths of files which a script saves by torch: `"weights/best.pth"`."""
    found: set[str] = set()
    for call in script.calls():
        path = call_argument(call, 1, "f") if script.qualname(call.func) == "torch.save" else None
        parts = list(walk(path)) if path is not None else []
        for name in [dotted(n) for n in parts if isinstance(n, (ast.Name, ast.Attribute))]:
            parts += [n for stmt in script.tree.assigns(name or "") for n in walk(stmt.value)]
        found |= {n.value for n in parts if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


def _saves(effects: SideEffects, call: ast.Call) -> bool:
    script = effects.script
    return script.qualname(call.func) == "torch.save" or any(
        site.name == "torch.save" for callee in script.callees(call) for site in effects.of(callee).sites
    )


def _takes_weights(effects: SideEffects, callee: Scope, name: str, far: int = _FAR) -> bool:
    """Whether a function reads the `state_dict` of an argument, itself or in what it calls."""
    for node in callee.calls:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name:
                return True
        for inner in effects.interpreter.calls.get(node, set()) if far else ():
            for given, own in handed_to(node, inner):
                if isinstance(given, ast.Name) and given.id == name:
                    if _takes_weights(effects, inner, own, far - 1):
                        return True
    return False


def saved_whole(effects: SideEffects, call: ast.Call, models: set[Entity]) -> set[str | None]:
    """Under which keys a call saves one of some models as an object, or has it done; None for a file of that alone.

    Args:
        effects: what functions of the program do.
        call: a call of the script.
        models: the models.
    """
    script = effects.script
    if script.qualname(call.func) == "torch.save":
        return _keys(call, script.scope_of(call), lambda node: bool(script.models_of(node) & models))
    found: set[str | None] = set()
    for callee in script.callees(call):
        module = script.interpreter.module_of(callee)
        if module in script.modules or not module.tree.mentions(b"torch.save"):
            continue
        given = {name for argument, name in handed_to(call, callee) if script.models_of(argument) & models}
        for node in callee.nodes if given else ():
            if isinstance(node, ast.Call) and effects.qualname(module, callee, node.func) == "torch.save":
                found |= _keys(node, callee, partial(_is_named, given))
    return found


def _is_named(names: set[str], node: ast.expr) -> bool:
    return dotted(node) in names


def _keys(save: ast.Call, scope: Scope, is_model: Callable[[ast.expr], bool]) -> set[str | None]:
    """Under which keys of what a `torch.save` writes a model is."""
    saved = call_argument(save, 0, "obj")
    written = [saved] if saved is not None else []
    if isinstance(saved, ast.Name):
        written += [
            node.value
            for node in scope.of_type(ast.Assign)
            if [dotted(t) for t in node.targets] == [saved.id]
        ]
    found: set[str | None] = set()
    for value in written:
        entries: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(value, ast.Dict):
            entries = list(zip(value.keys, value.values, strict=True))
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
            entries = [(ast.Constant(None), value)]
        for key, contained in entries:
            contained = _itself(contained)
            if isinstance(key, ast.Constant) and (key.value is None or isinstance(key.value, str)):
                bare = isinstance(contained, ast.Attribute) and contained.attr == "module"
                if isinstance(contained, (ast.Name, ast.Attribute)) and not bare and is_model(contained):
                    found.add(key.value)
    return found


def _itself(node: ast.expr) -> ast.expr:
    """What a model is before it is moved: `model` of `model.cpu().eval()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("cpu", "cuda", "to", "eval", "half", "float"):
            break
        node = node.func.value
    return node


__all__ = ["saved_paths", "saved_whole", "saves_weights"]
