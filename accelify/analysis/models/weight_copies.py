"""Stored values that are made from weights: copies, averages, sums of their gradients, the device of each.

first = copy.deepcopy(model.state_dict())
fisher = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
for name, p in model.named_parameters():
    ema.register(name, p.data)

What is stored is on the device of the weights, and is used together with them later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.local_objects import root_name
from accelify.analysis.syntax import calls_in, dotted, target_names, walk

# Methods of a model that give its weights.
WEIGHTS = frozenset({"state_dict", "parameters", "named_parameters", "buffers", "named_buffers"})
# What gives each together with what it is called.
_NAMED = frozenset({"named_parameters", "named_buffers", "items"})
# What makes another tensor of one, on its device.
_MAKING = re.compile(
    r"^(clone|deepcopy|cat|stack|parameters_to_vector|new_(zeros|ones|empty|full|tensor)|\w+_like)$"
)
_ELSEWHERE = frozenset({"cpu", "numpy", "to"})
_KNOWN = frozenset({"torch", "builtins", "numpy", "copy", "collections", "itertools"})

_Runs = Callable[[ScriptModel, ast.Call], Iterator[tuple[Scope, ast.AST]]]


def are_stored(script: ScriptModel, call: ast.Call, run_by: _Runs) -> bool:
    """Whether something that is made from the weights which a call returns is stored.

    Args:
        script: the script.
        call: `model.named_parameters()`.
        run_by: the functions that a call reaches, with all of their nodes.
    """
    inner: ast.AST = call
    for ancestor in script.tree.ancestors(call):
        if isinstance(ancestor, ast.Call) and inner is not ancestor.func:
            if script.qualname(ancestor.func) == "copy.deepcopy" or _makes_of(script, ancestor, call, run_by):
                return True
        if isinstance(ancestor, ast.comprehension):
            gone_through = script.tree.parent(ancestor)
            if gone_through is None or _clones(gone_through, target_names(ancestor.target)):
                return gone_through is not None
            put = script.tree.parent(gone_through)  # `torch.cat([p.view(-1) for p in net.parameters()])`
            return isinstance(put, ast.Call) and makes_another(put.func)
        if isinstance(ancestor, ast.For) and inner is ancestor.iter:
            names = target_names(ancestor.target)
            if any(isinstance(n, ast.Attribute) and n.attr in _NAMED for n in walk(ancestor.iter)):
                names = names[-1:]  # what it is called is no weight
            return any(
                _clones(stmt, names) or _hands_on(script, stmt, names, run_by) for stmt in ancestor.body
            )
        if isinstance(ancestor, ast.stmt):
            break
        inner = ancestor
    return False


def keeps_part(
    script: ScriptModel, node: ast.Call | ast.Attribute, is_model: Callable[[ast.expr], bool]
) -> bool:
    """Whether a node makes another tensor of a part of a model, or asks where the part is.

    `net.fc.weight.clone()`, `torch.ones_like(layer.weight)` for the layers of it, `next(net.parameters()).device`.
    """
    if isinstance(node, ast.Attribute):
        asked = node.attr == "device" and isinstance(node.ctx, ast.Load)
        own = isinstance(node.value, ast.Name) and node.value.id == script.scope_of(node).self_name()
        about = [node.value] if asked and not own else []
    elif makes_another(node.func):
        about = [*node.args, *[kw.value for kw in node.keywords]]
        about += [node.func.value] if isinstance(node.func, ast.Attribute) else []
    else:
        about = []
    if not any(_is_of_model(script, part, is_model) for part in about):
        return False
    stmt = script.tree.statement(node)
    inside = (
        {n.attr for n in walk(stmt) if isinstance(n, ast.Attribute)}
        if isinstance(stmt, ast.Assign)
        else set()
    )
    return isinstance(node, ast.Attribute) or not inside & _ELSEWHERE


def _is_of_model(script: ScriptModel, node: ast.expr, is_model: Callable[[ast.expr], bool]) -> bool:
    """Whether an expression reads a model, or what a loop around it takes out of one."""
    read = [n for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    if any(is_model(part) for part in read):
        return True
    names = {n.id for n in read if isinstance(n, ast.Name)}
    loops = [a for a in script.tree.ancestors(node) if isinstance(a, (ast.For, ast.ListComp, ast.DictComp))]
    for loop in loops:
        for one in [loop] if isinstance(loop, ast.For) else loop.generators:
            if names & set(target_names(one.target)):
                if any(is_model(n) for n in walk(one.iter) if isinstance(n, (ast.Name, ast.Attribute))):
                    return True
    return False


def makes_another(node: ast.AST) -> bool:
    """Whether a node is the name of what makes another tensor of one, or of several."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_MAKING.match(name))


def _makes_of(script: ScriptModel, outer: ast.Call, weights: ast.Call, run_by: _Runs) -> bool:
    """Whether a call makes something from weights that it gets directly: `Average(model.parameters())`."""
    if not any(a is weights for a in [*outer.args, *[kw.value for kw in outer.keywords]]):
        return False
    if makes_another(outer.func):
        return True
    callees = script.callees(outer)
    if not callees:
        # `ExponentialMovingAverage(model.parameters(), decay=0.99)` of a library
        name = script.qualname(outer.func) or ""
        known = name.split(".")[0] in _KNOWN or script.is_a(outer, v.OPTIMIZER)
        return name != "" and not known and name.rpartition(".")[2][:1].isupper()
    if script.is_a(outer, v.OPTIMIZER):
        return False
    given = {name for callee in callees for argument, name in handed_to(outer, callee) if argument is weights}
    return any(_keeps(node, given) for function, node in run_by(script, outer))


def _hands_on(script: ScriptModel, stmt: ast.stmt, names: Collection[str], run_by: _Runs) -> bool:
    """Whether a statement passes a weight to a function of the project that stores it, or a part of it."""
    for call in calls_in(stmt):
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if not any(root_name(a) in names for a in given):
            continue
        own = {
            name
            for callee in script.callees(call)
            for argument, name in handed_to(call, callee)
            if root_name(argument) in names
        }
        if any(_keeps(node, own) for function, node in run_by(script, call)):
            return True
    return False


def _keeps(node: ast.AST, names: Collection[str]) -> bool:
    """Whether a node of a function stores the value of a parameter: a copy of it, itself, or its device."""
    if makes_another(node) or asks_device(node, names):
        return True
    return (
        isinstance(node, ast.Assign)
        and root_name(node.value) in names
        and any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
        and dotted(node.value) is not None
    )


def _clones(node: ast.AST, names: Collection[str]) -> bool:
    """Whether something makes another tensor of one and does not bring it to the CPU at once, or asks for a device."""
    inside = {n.attr for n in walk(node) if isinstance(n, ast.Attribute)}
    if any(asks_device(n, names) for n in walk(node)):
        return True
    return any(makes_another(n) for n in walk(node)) and not inside & _ELSEWHERE


def asks_device(node: ast.AST, names: Collection[str]) -> bool:
    """Whether a node asks where something of some names is: `next(net.parameters()).device`."""
    if not isinstance(node, ast.Attribute) or node.attr != "device":
        return False
    return any(isinstance(n, ast.Name) and n.id in names for n in walk(node.value))
