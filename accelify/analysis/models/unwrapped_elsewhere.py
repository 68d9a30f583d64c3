"""Functions of modules that are not converted which take a model out of its DataParallel: `net = net.module`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from accelify.analysis.files.effect_sites import defaults_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, is_constant, walk
from accelify.analysis.values import Entity

_WORD = b".module"
# Functions may pass the model on to others, as far as this.
_FARTHEST = 3
# Who asks one of these of the model knows that it may be bare.
_ASKING = frozenset({"hasattr", "isinstance", "type", "getattr"})


@dataclass(frozen=True, eq=False)
class UnwrappedElsewhere:
    """A call that passes a model to a function which reads `.module` of it, and the test that says it is wrapped.

    Attributes:
        call: the script's call.
        model: what it passes.
        callee: the function that reads `.module`.
        module: where that is.
        read: the place.
        flag: the argument that is only tested for whether the model is wrapped, None where there is none.
    """

    call: ast.Call
    model: ast.expr
    callee: Scope
    module: Module
    read: ast.Attribute
    flag: ast.expr | None


def unwrapped_elsewhere(script: ScriptModel, models: Set[Entity]) -> Iterator[UnwrappedElsewhere]:
    """The calls of a script that pass such a function one of some models."""
    others = {
        m for m in script.program.modules.values() if m not in script.modules and m.tree.mentions(_WORD)
    }
    for call in script.calls() if others and models else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module in script.modules:
                continue
            for argument, name in handed_to(call, callee):
                if not script.models_of(argument) & models:
                    continue
                found = _read(script, call, callee, name, _FARTHEST)
                if found is not None:
                    scope, read = found
                    flag = _flag(module, call, callee, read) if scope is callee else None
                    where = script.interpreter.module_of(scope)
                    yield UnwrappedElsewhere(call, argument, scope, where, read, flag)


def _read(
    script: ScriptModel, call: ast.Call, callee: Scope, name: str, far: int
) -> tuple[Scope, ast.Attribute] | None:
    """Where a function, or one that it passes the model on to, reads `.module` off it without asking for it first."""
    module = script.interpreter.module_of(callee)
    for node in callee.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "module" and isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Name) and node.value.id == name:
                if not _is_asked_for(module, node, name) and not _is_left_out(module, call, callee, node):
                    return callee, node
        elif isinstance(node, ast.Call) and far:
            for inner in in_order(script.callees(node)):
                for given, own in handed_to(node, inner):
                    if isinstance(given, ast.Name) and given.id == name:
                        found = _read(script, node, inner, own, far - 1)
                        if found is not None:
                            return found
    return None


def _is_asked_for(module: Module, read: ast.Attribute, name: str) -> bool:
    """Whether the function asks the model whether it has a wrapper, or gets over it where it has none."""
    for around in module.tree.ancestors(read):
        if isinstance(around, ast.Try):
            return True
        if isinstance(around, (ast.If, ast.IfExp)) and any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Name)
            and n.func.id in _ASKING
            and any(isinstance(a, ast.Name) and a.id == name for a in n.args)
            for n in walk(around.test)
        ):
            return True
    return False


def _asked(module: Module, callee: Scope, read: ast.Attribute) -> str | None:
    """The parameter of a function that has to be true for a place in it to be reached: `if parallel: ...`."""
    inner: ast.AST = read
    for around in module.tree.ancestors(read):
        if isinstance(around, (ast.If, ast.IfExp)) and isinstance(around.test, ast.Name):
            body = around.body if isinstance(around.body, list) else [around.body]
            if any(inner is part for part in body) and around.test.id in defaults_of(callee):
                return around.test.id
        inner = around
    return None


def _is_left_out(module: Module, call: ast.Call, callee: Scope, read: ast.Attribute) -> bool:
    """Whether an argument of a call, or its default, is a flag that the model is not wrapped."""
    name = _asked(module, callee, read)
    given = defaults_of(callee) | {own: argument for argument, own in handed_to(call, callee)}
    return name is not None and is_constant(given.get(name), None, False, 0)


def _flag(module: Module, call: ast.Call, callee: Scope, read: ast.Attribute) -> ast.expr | None:
    name = _asked(module, callee, read)
    for node in callee.nodes if name is not None else ():
        if isinstance(node, ast.Name) and node.id == name:
            around = module.tree.parent(node)
            if not isinstance(around, (ast.If, ast.IfExp)) or around.test is not node:
                return None
            if any(_moves_another(part, read) for part in walk(around)):
                return None
    return next((argument for argument, own in handed_to(call, callee) if own == name), None)


def _moves_another(node: ast.AST, read: ast.Attribute) -> bool:
    """Whether a node moves another value than the model to a device: the flag is then about the GPU."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("cuda", "to"):
        return False
    return (dotted(node.value) or "").partition(".")[0] != dotted(read.value)


__all__ = ["UnwrappedElsewhere", "unwrapped_elsewhere"]
