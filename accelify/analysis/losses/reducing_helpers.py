"""Helpers that reduce over the processes by themselves. Modules of them evaluate nothing, for all their `no_grad`.

with torch.no_grad():
    dist.all_reduce(value)
    value /= dist.get_world_size()
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_argument, is_constant, walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_COLLECTIVES = frozenset(
    "all_reduce reduce all_gather all_gather_into_tensor all_gather_object gather broadcast reduce_scatter".split()
)


def only_reduces(module: Module) -> bool:
    """Whether all that a module does without gradients is to put tensors of several processes together.

    Such helpers ask by themselves whether there is a process group, and work as they are.
    """
    data = module.tree.data
    if b"distributed" not in data or b".backward(" in data or b".eval()" in data:
        return False
    return all(
        _reduces(module.scopes.of(node))
        for node in module.tree.nodes(ast.Attribute, ast.Name)
        if "no_grad" in (getattr(node, "attr", ""), getattr(node, "id", ""))
    )


def _reduces(scope: Scope) -> bool:
    """Whether a function calls a collective, and runs none of its arguments."""
    if scope.kind != "function":
        return False
    called = [n.func for n in scope.calls]
    given = {a.arg for a in scope.parameters()}
    names = {getattr(f, "attr", getattr(f, "id", "")) for f in called}
    return bool(names & _COLLECTIVES) and not any(isinstance(f, ast.Name) and f.id in given for f in called)


def adds_up(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call runs a helper of the program that adds up over the processes, and averages nothing."""
    return any(_adds(callee, call) for callee in script.callees(call))


def _adds(scope: Scope, call: ast.Call) -> bool:
    called = scope.calls
    if not any(getattr(c.func, "attr", getattr(c.func, "id", "")) == "all_reduce" for c in called):
        return False
    for branch in scope.of_type(ast.If):
        test = branch.test
        if isinstance(test, ast.Name) and any(_divides(n) for s in branch.body for n in walk(s)):
            return is_constant(_stated(scope, call, test.id), False)
    return not any(_divides(n) for n in scope.nodes)


def _stated(scope: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """What a call passes for a parameter, or the parameter's default."""
    positional = scope.positional()
    given = call_argument(call, positional.index(name) if name in positional else len(call.args), name)
    if given is not None or not isinstance(scope.node, ast.FunctionDef):
        return given
    spec = scope.node.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults = dict(zip([a.arg for a in plain[::-1]], spec.defaults[::-1], strict=False))
    return defaults.get(name)


def _divides(node: ast.AST) -> bool:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return isinstance(node.op, ast.Div)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("div", "div_", "mean")
