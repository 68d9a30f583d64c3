"""What a criterion, or another method that computes a loss, stores of a batch for the next losses.

self.target[index] = 0.7 * self.target[index] + 0.3 * p.detach()    # in `forward`, entry by entry
self.scale = 0.9 * self.scale + 0.1 * output.detach().mean()        # a running value

bank.update(features.detach(), index)       # `self.rows.index_copy_(0, index, features)` of what the loss reads

Each process stores what its batches bring. Of entries that belong to samples, a process has only those of its
samples, which shuffling moves to another process in the next epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import NamedTuple

from accelify.analysis.metrics.figures import BatchLoop
from accelify.analysis.metrics.stored_state import own_attribute
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, is_constant, names_in, stores_in, target_names, walk
from accelify.analysis.values import Entity

_TAKEN_OUT = frozenset({"detach", "data", "item", "numpy"})
AGREEING = frozenset(
    "reduce gather gather_for_metrics broadcast all_reduce all_gather all_gather_into_tensor".split()
)

_WRITING = frozenset(
    "copy_ index_copy_ index_add_ scatter_ scatter_add_ index_put_ masked_scatter_ lerp_".split()
)

Update = ast.Assign | ast.AugAssign | ast.Expr


class CriterionState(NamedTuple):
    """A call that computes a loss, the method that stores a value for it, the statement and the attribute."""

    call: ast.Call
    method: Scope
    update: Update
    attribute: str


def criterion_states(
    script: ScriptModel, loop: BatchLoop, batch: Set[str], prepared: Set[Entity]
) -> Iterator[CriterionState]:
    """What methods store that a training loop computes its losses from.

    Args:
        script: its model.
        loop: that trains.
        batch: the names in it that hold something of the batch.
        prepared: what prepare places: it treats the buffers of models in the same way.
    """
    calls = _calls_of_losses(script, loop)
    yield from _written_beside(script, loop, batch, prepared, calls)
    for call in calls:
        if script.models_run(call) & prepared or not _lasts_for_rounds(call, loop):
            continue
        for method in in_order(script.callees(call)):
            if not method.is_method:
                continue
            given = {name for argument, name in handed_to(call, method) if names_in(argument) & batch}
            if given:
                for update, attribute in _stored(method, given):
                    if not _by_entry(update) or _is_shuffled(script, loop):
                        yield CriterionState(call, method, update, attribute)


def _written_beside(
    script: ScriptModel, loop: BatchLoop, batch: Set[str], prepared: Set[Entity], losses: list[ast.Call]
) -> Iterator[CriterionState]:
    """What a call beside the loss writes into an object that the loss is computed with: a bank of features."""
    read = {
        (method.owner_class, attribute)
        for call in losses
        for method in in_order(script.callees(call))
        if method.is_method
        for attribute in _returned(method)
    }
    calls = [n.value for s in loop.body for n in walk(s) if isinstance(n, ast.Expr)] if read else []
    for call in calls:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        contained = script.entities(call.func.value)
        if contained & prepared or call in losses or not _lasts_for_rounds(call, loop):
            continue
        for method in in_order(script.callees(call)):
            given = {name for argument, name in handed_to(call, method) if names_in(argument) & batch}
            written = _written(method, given) if method.is_method and given else ()
            for update, attribute in written:
                if (method.owner_class, attribute) in read:
                    yield CriterionState(call, method, update, attribute)
                    break


def _returned(method: Scope) -> Iterator[str]:
    """The attributes of its object that a method assigns."""
    assigned = _assigned(method)
    values = [n.value for n in method.of_type(ast.Return) if n.value is not None]
    for node in _read_for(values, assigned):
        attribute = own_attribute(method, node)
        if attribute is not None:
            yield attribute


def _written(method: Scope, given: set[str]) -> Iterator[tuple[Update, str]]:
    """The statements of a method that write something of its parameters into attributes of its object."""
    if any(isinstance(n, ast.Call) and getattr(n.func, "attr", "") in AGREEING for n in method.nodes):
        return
    derived = derived_from(method, given)
    for node in method.nodes:
        target: ast.expr | None = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            if isinstance(func, ast.Attribute) and func.attr in _WRITING and names_in(node.value) & derived:
                target = func.value
        elif isinstance(node, ast.Assign) and names_in(node.value) & derived:
            target = node.targets[0]
        attribute = own_attribute(method, target) if target is not None else None
        if attribute is not None and isinstance(node, (ast.Assign, ast.Expr)):
            yield node, attribute


def derived_from(method: Scope, given: set[str]) -> set[str]:
    """Some parameters of a method, and the variables that are made of them."""
    derived, before = set(given), -1
    while before < len(derived):
        before = len(derived)
        for node in method.nodes:
            if isinstance(node, ast.Assign) and names_in(node.value) & derived:
                derived |= {n for t in node.targets for n in target_names(t)}
    return derived


def _calls_of_losses(script: ScriptModel, loop: BatchLoop) -> list[ast.Call]:
    """The calls that the losses of a loop are made of."""
    nodes = [n for stmt in loop.body for n in walk(stmt)]
    inside = {n for n in nodes if isinstance(n, ast.Call)}
    made: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for name in (n for target in node.targets for n in target_names(target)):
                made.setdefault(name, []).append(node.value)
    queue = [b.loss for b in script.backwards if b.call in inside]
    known: set[str] = set()
    found: list[ast.Call] = []
    while queue:
        for node in walk(queue.pop()):
            if isinstance(node, ast.Call) and node not in found:
                found.append(node)
            elif isinstance(node, ast.Name) and node.id not in known:
                known.add(node.id)
                queue += made.get(node.id, [])
    return found


def _lasts_for_rounds(call: ast.Call, loop: BatchLoop) -> bool:
    """Whether the object whose method is called is there before the loop: it is not made again in each round."""
    base = call.func
    while isinstance(base, ast.Attribute):
        base = base.value
    return isinstance(base, ast.Name) and base.id not in stores_in(loop)


def _stored(method: Scope, given: set[str]) -> Iterator[tuple[ast.Assign | ast.AugAssign, str]]:
    """The statements of a method that store values from its parameters, with the attributes that are read there."""
    nodes = method.nodes
    if any(isinstance(n, ast.Call) and getattr(n.func, "attr", "") in AGREEING for n in nodes):
        return
    derived = derived_from(method, given)
    assigned = _assigned(method)
    out = {name for name, values in assigned.items() if any(map(_takes_out, values))}
    returned = _read_for(
        [n.value for n in nodes if isinstance(n, ast.Return) and n.value is not None], assigned
    )
    for node in nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign)) or not names_in(node.value) & derived:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        attribute = own_attribute(method, target)
        if attribute is None or not (_takes_out(node.value) or names_in(node.value) & out):
            continue
        reads = [n for n in returned if own_attribute(method, n) == attribute]
        carried = isinstance(node, ast.AugAssign) or any(
            isinstance(n, ast.Attribute) and own_attribute(method, n) == attribute for n in walk(node.value)
        )
        if reads and (carried or any(n.lineno < node.lineno for n in reads)):
            yield node, attribute


def _assigned(method: Scope) -> dict[str, list[ast.expr]]:
    """The values assigned to the variables of a method, by name."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in method.nodes:
        if isinstance(node, ast.Assign):
            for name in (n for t in node.targets for n in target_names(t)):
                assigned.setdefault(name, []).append(node.value)
    return assigned


def _read_for(values: list[ast.expr], assigned: dict[str, list[ast.expr]]) -> list[ast.Attribute]:
    """The attributes that some values are made of, through the variables of their function."""
    queue, known, found = list(values), set[str](), list[ast.Attribute]()
    while queue:
        for node in walk(queue.pop()):
            if isinstance(node, ast.Attribute):
                found.append(node)
            elif isinstance(node, ast.Name) and node.id not in known:
                known.add(node.id)
                queue += assigned.get(node.id, [])
    return found


def _takes_out(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _TAKEN_OUT for n in walk(node))


def _by_entry(update: ast.Assign | ast.AugAssign) -> bool:
    target = update.targets[0] if isinstance(update, ast.Assign) else update.target
    return isinstance(target, ast.Subscript)


def _is_shuffled(script: ScriptModel, loop: BatchLoop) -> bool:
    loaders = next((found for one, found in script.loader_loops if one is loop), set())
    shuffled = [call_keyword(t.site, "shuffle") for t in loaders if isinstance(t.site, ast.Call)]
    return bool(shuffled) and all(is_constant(one, True) for one in shuffled)


__all__ = ["AGREEING", "CriterionState", "criterion_states", "derived_from"]
