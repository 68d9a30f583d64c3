"""What a script has read from a file, followed through its names to where it is used."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from accelify.analysis.models.merged_weights import merged_weights
from accelify.analysis.program import Module
from accelify.analysis.schedules.steps import sources
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, target_names
from accelify.analysis.values import Imported

_LOAD = b"torch.load"

# How many names are between a checkpoint and what is read of it at most.
_FAR = 4


def comes_from(script: ScriptModel, node: ast.expr, calls: Collection[ast.expr], far: int = _FAR) -> bool:
    """Whether an expression is what one of some calls returns, or a part of it: an entry or an attribute.

    Args:
        script: its model.
        node: the expression.
        calls: `torch.load(...)` and the like.
        far: how many assignments and parameters it is followed through.
    """
    while isinstance(node, (ast.Subscript, ast.Call, ast.Attribute)) and node not in calls:
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("get", "pop"):
                return False
            node = node.func
        elif isinstance(node, ast.Attribute) and script.scope_of(node).self_name() == dotted(node.value):
            break
        node = node.value
    if node in calls:
        return True
    if far == 0 or not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    given = [*sources(script, node), *_unpacked(script, node)]
    return any(comes_from(script, source, calls, far - 1) for source in given)


def _unpacked(script: ScriptModel, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a name is assigned as one of several: `package, epoch = read(path)`."""
    name = dotted(node)
    return [
        stmt.value
        for stmt in script.scope_of(node).of_type(ast.Assign)
        if isinstance(stmt.targets[0], ast.Tuple)
        if any(dotted(part) == name for part in stmt.targets[0].elts)
    ]


def loads_of_states(script: ScriptModel, loads: Iterable[ast.Call]) -> set[ast.Call]:
    """Those of some calls of which a part goes into a `load_state_dict`: of a model, an optimizer, anything.

    What a function returns is followed to its callers, and through one more function.
    """
    taken = [
        state
        for call in script.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"
        if (state := call_argument(call, 0, "state_dict")) is not None
    ]
    taken += [other for merged in merged_weights(script) for other in merged.others]
    return {load for load in loads if _is_taken(script, load, taken)} if taken else set()


def _is_taken(script: ScriptModel, load: ast.Call, taken: list[ast.expr]) -> bool:
    given = with_callers(script, {load})
    return any(comes_from(script, state, given) for state in taken)


def with_callers(script: ScriptModel, calls: Collection[ast.Call]) -> set[ast.expr]:
    """Some calls, and the calls of functions that return their result, through one more function."""
    given: set[ast.expr] = set(calls)
    for _ in range(2):
        inside = {script.scope_of(one) for one in given}
        for scope in inside:
            returned = [n.value for n in scope.of_type(ast.Return) if n.value is not None]
            parts = [p for v in returned for p in (v.elts if isinstance(v, ast.Tuple) else [v])]
            if scope.kind == "function" and any(comes_from(script, part, given) for part in parts):
                given |= set(script.callers(scope))
    return given


def loads_elsewhere(script: ScriptModel) -> set[ast.Call]:
    """The calls of functions of other modules that return what they read: `return torch.load(path)`."""
    others = {
        m for m in script.program.modules.values() if m not in script.modules and m.tree.mentions(_LOAD)
    }
    return {
        call
        for call in (script.calls() if others else ())
        for callee in script.callees(call)
        if (module := script.interpreter.module_of(callee)) in others and _gives_load(script, module, callee)
    }


def _gives_load(script: ScriptModel, module: Module, callee: Scope) -> bool:
    returned = [n.value for n in callee.of_type(ast.Return) if n.value is not None]
    names = {n.id for n in returned if isinstance(n, ast.Name)}
    made = [n.value for n in callee.of_type(ast.Assign) if names & set(target_names(n.targets[0]))]
    return any(
        isinstance(value, Imported) and value.name == "torch.load"
        for given in [*returned, *made]
        if isinstance(given, ast.Call)
        for value in script.interpreter.evaluate(module, callee, given.func)
    )
