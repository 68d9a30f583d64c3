"""What a `def` or a `class` evaluates where it is defined: defaults, decorators, bases, and the class body."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, walk
from accelify.analysis.values import Entity


class Default(NamedTuple):
    """The default of a parameter, which can as well be made in the first line of its function."""

    function: Scope
    name: str
    value: ast.expr


def in_header(script: ScriptModel, node: Node, scope: Scope) -> bool:
    """Whether a node of a function's scope is before its body: in a default, a decorator, an annotation."""
    if scope.kind != "function" or not hasattr(node, "lineno"):
        return False
    assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return script.tree.is_before(node, scope.node.body[0])


def evaluating_scope(script: ScriptModel, node: Node) -> Scope:
    """The function or module that runs a node: the one around a definition for what its header and class lines do."""
    scope = script.scope_of(node)
    while scope.parent is not None and (scope.kind == "class" or in_header(script, node, scope)):
        node, scope = scope.node, scope.parent
    return scope


def movable_default(script: ScriptModel, call: ast.Call) -> Default | None:
    """The default that a call is in, where its function can make it instead, as it does once at the most.

    A default is made once for all calls: nobody may tell whether it is made for the one call that leaves it out.
    """
    function = script.scope_of(call)
    if not in_header(script, call, function) or function.parent is None or function.parent.kind == "function":
        return None
    arguments = function.node.args  # type: ignore[union-attr]
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(plain), reversed(arguments.defaults), strict=False)]
    pairs += [
        (a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None
    ]
    chain = {call, *script.tree.ancestors(call)}
    for parameter, value in pairs:
        if value in chain:
            default = Default(function, parameter.arg, value)
            return default if _is_made_once(script, default) and _only_keeps(script, call) else None
    return None


def _is_made_once(script: ScriptModel, default: Default) -> bool:
    """Whether at most one call leaves a default out, in no loop, and none passes None, which means it from now."""
    leaving = 0
    for call in script.callers(default.function):
        handed = _handed(call, default)
        if handed is None:
            leaving += 1
            if script.enclosing_loops(call):
                return False
        elif isinstance(handed, ast.Constant) and handed.value is None:
            return False
    return leaving <= 1


def _handed(call: ast.Call, default: Default) -> ast.expr | None:
    """What a call passes in place of a default; None where it does not, as far as is seen."""
    for keyword in call.keywords:
        if keyword.arg == default.name:
            return keyword.value
    names = default.function.positional()[default.function.self_name() is not None :]
    index = names.index(default.name) if default.name in names else len(call.args)
    if index >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
        return None
    return call.args[index]


def _only_keeps(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call makes an object of a plain class: a module would draw its weights at another time."""
    if any(isinstance(n, ast.Call) and script.callees(n) for n in walk(call) if n is not call):
        return False
    made = script.values(call)
    return bool(made) and all(isinstance(w, Entity) and w.kind in (v.INSTANCE, v.CRITERION) for w in made)
