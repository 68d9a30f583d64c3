"""Functions of modules that are not converted which ask what class a model is of: `isinstance(net, Net)`.

A prepared model is of the wrapper's class on several processes, and the answer is no.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import Class, Entity

_ASKING = (b"isinstance(", b"type(")
# Who asks for these finds the model in any wrapper.
_UNWRAPPING = frozenset({"hasattr", "getattr"})


class AskedElsewhere(NamedTuple):
    """A call that passes a function a model, where that tests its class, and whether it does nothing else with it."""

    call: ast.Call
    model: ast.expr
    callee: Scope
    module: Module
    test: ast.Call
    only: bool


def asked_elsewhere(script: ScriptModel, models: Set[Entity]) -> Iterator[AskedElsewhere]:
    """The calls of a script that pass such a function one of some models."""
    others = {
        module
        for module in script.program.modules.values()
        if module not in script.modules and any(module.tree.mentions(word) for word in _ASKING)
    }
    for call in script.calls() if others and models else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            for argument, name in handed_to(call, callee) if module in others else ():
                if (
                    not isinstance(argument, (ast.Name, ast.Attribute))
                    or not script.models_of(argument) & models
                ):
                    continue
                found = _asked(script, module, callee, name)
                if found is not None:
                    yield AskedElsewhere(call, argument, callee, module, *found)


def _asked(script: ScriptModel, module: Module, callee: Scope, name: str) -> tuple[ast.Call, bool] | None:
    """Where a function tests the class of an argument, and whether it does nothing else with the argument."""
    tests: list[ast.Call] = []
    asking: set[ast.AST] = set()
    nodes = walk(callee.node)
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args or dotted(node.args[0]) != name:
            continue
        if dotted(node.func) in _UNWRAPPING:
            return None
        if dotted(node.func) == "isinstance" and len(node.args) == 2:
            asking.add(node.args[0])
            kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            contained = {w for kind in kinds for w in script.interpreter.evaluate(module, callee, kind)}
            if any(isinstance(w, v.Imported) and w.name in k.DDP_WRAPPERS for w in contained):
                return None
            if any(
                isinstance(w, Class) and script.interpreter.kind_of_class(w) == v.MODEL for w in contained
            ):
                tests.append(node)
        elif dotted(node.func) == "type" and isinstance(module.tree.parent(node), ast.Compare):
            asking.add(node.args[0])
            tests.append(node)
    if not tests:
        return None
    reads = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    return tests[0], all(read in asking or _is_part(module, read) for read in reads)


def _is_part(module: Module, read: ast.Name) -> bool:
    """Whether a name is read for what is in a wrapper: `net = net.module`, after a test for it."""
    parent = module.tree.parent(read)
    return isinstance(parent, ast.Attribute) and parent.attr == "module"


__all__ = ["AskedElsewhere", "asked_elsewhere"]
