"""Tables that the backward of an autograd Function writes: what it was handed, kept from batch to batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, target_names
from accelify.analysis.values import Class, Thing

_SAVED = ("saved_tensors", "saved_variables")


def written_tables(cls: Class) -> Iterator[ast.expr]:
    """What a Function's backward writes in place of what was handed to it: `ctx.lut[y]`, behind `ctx.lut = lut`.

    Args:
        cls: a class, of any kind.
    """
    if not any(
        base.startswith("torch.autograd.") and base.endswith(".Function") for base in cls.external_bases()
    ):
        return
    methods = {m.name.rsplit(".", 1)[-1]: m for m in cls.scope.children.values()}
    backward = methods.get("backward")
    own = _context(backward) if backward is not None else None
    if backward is None or own is None:
        return
    handed = {
        name
        for method in (methods.get("__init__"), methods.get("forward"))
        for name in (_handed(method) if method is not None else ())
    }
    tables = {f"{own}.{name}" for name in handed}
    forward = methods.get("forward")
    saved = list(_saved(forward)) if forward is not None else []
    for node in backward.nodes:
        if isinstance(node, ast.Assign) and dotted(node.value) in {f"{own}.{name}" for name in _SAVED}:
            names = list(target_names(node.targets[0]))
            tables |= {name for name, is_handed in zip(names, saved, strict=False) if is_handed}
    for node in backward.nodes:
        for target in _written(node):
            if dotted(target) in tables:
                yield target


def _context(method: Scope) -> str | None:
    """The name of the first parameter, `ctx` or `self`."""
    names = method.positional()
    return names[0] if names else None


def _handed(method: Scope) -> Iterator[str]:
    """The attributes that a method sets to what it is handed: `lut` of `ctx.lut, ctx.momentum = lut, momentum`."""
    own, given = _context(method), set(method.positional()[1:])
    for node in method.nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]  # type: ignore[attr-defined]
            if isinstance(target, ast.Tuple) and isinstance(pairs[0][1], ast.Tuple):
                pairs = list(zip(target.elts, pairs[0][1].elts, strict=False))
            for one, value in pairs:
                if isinstance(one, ast.Attribute) and dotted(one.value) == own and dotted(value) in given:
                    yield one.attr


def _saved(forward: Scope) -> Iterator[bool]:
    """Of each tensor that a forward saves for the backward, whether it was handed to it and not made there."""
    given = set(forward.positional()[1:])
    for node in forward.calls:
        if (dotted(node.func) or "").endswith(".save_for_backward"):
            yield from (dotted(argument) in given for argument in node.args)


def _written(node: ast.AST) -> list[ast.expr]:
    """What a statement writes an entry of, or changes in place."""
    targets = list(node.targets) if isinstance(node, ast.Assign) else []
    targets += [node.target] if isinstance(node, ast.AugAssign) else []
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        changing = node.value.func.attr.endswith("_") and not node.value.func.attr.endswith("__")
        return [_root(node.value.func.value)] if changing else []
    return [_root(t) for t in targets if isinstance(t, ast.Subscript) or isinstance(node, ast.AugAssign)]


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return node


def is_run(script: ScriptModel, cls: Class) -> bool:
    """Whether the program comes to where a Function is applied: a criterion that nobody makes applies none."""
    name, seen = cls.name, set[Scope]()
    for module in dict.fromkeys(script.program.modules.values()):
        if not module.tree.mentions(name.encode()):
            continue
        for node in module.tree.nodes(ast.Call, ast.Attribute):
            # `Look(lut)(x)`, `Look.apply(x, lut)`, or `look = Look.apply`.
            func = node.func if isinstance(node, ast.Call) else node if node.attr == "apply" else None
            text = (dotted(func) or "").removesuffix(".apply") if func is not None else ""
            if text.rpartition(".")[2] == name and _is_reached(script, module.scopes.of(node), seen):
                return True
    return False


def _is_reached(script: ScriptModel, scope: Scope, seen: set[Scope]) -> bool:
    if scope in seen:
        return False
    seen.add(scope)
    while scope.kind == "class" and scope.parent is not None:
        scope = scope.parent
    if scope.kind != "function":
        return True
    interpreter = script.interpreter
    calls = list(interpreter.callers.get(scope, ()))
    if scope.owner_class is not None:
        calls = [
            (thing.module, thing.site)
            for thing in interpreter.things.values()
            if isinstance(thing, Thing)
            and thing.module is not None
            and isinstance(thing.site, ast.Call)
            and thing.cls is not None
            and any(one.scope.node is scope.owner_class for one in thing.cls.ancestry())
        ]
    return any(_is_reached(script, module.scopes.of(call), seen) for module, call in calls)
