"""Variables that weigh a loss and are carried on from round to round: `loss = real - k * fake; k = k + 0.1 * ...`."""

from __future__ import annotations

import ast
from collections.abc import Set

from accelify.analysis.metrics.figures import BatchLoop, Place, place_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, walk

Update = ast.Assign | ast.AugAssign | ast.Expr
# Methods by which a tensor is set, or added to, where it is.
_IN_PLACE = frozenset("copy_ fill_ set_ mul_ add_ sub_ div_ lerp_ clamp_".split())


def weights(script: ScriptModel, loop: BatchLoop) -> dict[Place, list[Update]]:
    """What goes into the losses of a training loop with the value of the round before, and what sets it.

    Args:
        script: its model.
        loop: that trains.
    """
    inside = {b.call for b in script.backwards} & set(calls_in(loop))
    losses = [b.loss for b in script.backwards if b.call in inside]
    if not losses:
        return {}
    updates: dict[Place, list[Update]] = {}
    targets: dict[Place, list[ast.expr]] = {}
    for stmt in (n for s in loop.body for n in walk(s)):
        if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.Expr)):
            for one in _targets(stmt):
                place = place_of(script, one)
                if place is not None and not place.whole:
                    updates.setdefault(place, []).append(stmt)
                    targets.setdefault(place, []).append(one)
    feeding: set[str] = set()
    queue = [text for loss in losses for text in _read_in(script, loss)]
    while queue:
        text = queue.pop()
        if text in feeding:
            continue
        feeding.add(text)
        for place, stmts in updates.items():
            if place.text == text:
                queue += [t for stmt in stmts for t in _read_in(script, stmt.value)]
    fed = {place: stmts for place, stmts in updates.items() if place.text in feeding}
    named = _by_last_name(loop) if fed else {}
    return {
        place: stmts for place, stmts in fed.items() if _is_read_first(script, named, place, targets[place])
    }


def _targets(stmt: Update) -> list[ast.expr]:
    """What a statement sets: `x`, also of `x.data = ...` and `x.data.mul_(0.9).add_(...)`."""
    if isinstance(stmt, ast.Expr):
        node: ast.expr = stmt.value
        while (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _IN_PLACE
        ):
            node = node.func.value
        return [_of_data(node)] if node is not stmt.value else []
    given = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    flat = [one for t in given for one in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    return [_of_data(one) for one in flat]


def _of_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _read_in(script: ScriptModel, node: ast.expr) -> set[str]:
    """The variables and attributes of `self` that an expression reads, calls aside."""
    called = {id(n.func) for n in calls_in(node)}
    found = set()
    for part in walk(node):
        if isinstance(part, (ast.Name, ast.Attribute)) and id(part) not in called:
            place = place_of(script, part)
            if place is not None:
                found.add(place.text)
    return found


def _by_last_name(loop: BatchLoop) -> dict[str, list[ast.Name | ast.Attribute]]:
    """The names and attributes in the body of a loop, by what they end with."""
    found: dict[str, list[ast.Name | ast.Attribute]] = {}
    for node in (n for s in loop.body for n in walk(s)):
        if isinstance(node, ast.Name):
            found.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.Attribute):
            found.setdefault(node.attr, []).append(node)
    return found


def _is_read_first(
    script: ScriptModel,
    named: dict[str, list[ast.Name | ast.Attribute]],
    place: Place,
    targets: list[ast.expr],
) -> bool:
    """Whether a round reads a place before it sets it."""
    reads: list[int] = []
    stores = [script.tree.start(target) for target in targets]
    for node in named.get(place.text.rsplit(".", 1)[-1], ()):
        if dotted(node) == place.text and node not in targets:
            (reads if isinstance(node.ctx, ast.Load) else stores).append(script.tree.start(node))
    return bool(reads) and bool(stores) and min(reads) < min(stores)


def numbers_in(
    script: ScriptModel, loop: BatchLoop, value: ast.expr, batch: Set[str], depth: int = 2
) -> list[ast.expr]:
    """The numbers that are taken of what one process makes of its batch, in a value or in what it is made of.

    Args:
        script: its model.
        loop: over the batches.
        value: that is carried on.
        batch: the names in the loop that hold something of the batch.
        depth: through how many variables to look.
    """
    found: list[ast.expr] = []
    queue: list[ast.expr] = [value]
    while queue:
        node = queue.pop()
        if _is_number(node):
            if any(isinstance(n, ast.Name) and n.id in batch for n in walk(node)):
                found.append(node)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and depth:
            made = made_last(script, loop, node)
            if made is not None and made is not value:
                found += numbers_in(script, loop, made, batch, depth - 1)
            continue
        queue += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return list(dict.fromkeys(found))


def made_last(script: ScriptModel, loop: BatchLoop, name: ast.Name) -> ast.expr | None:
    """What a variable was set to in the loop before it is read; None where that depends on a condition."""
    before = [
        stmt
        for stmt in (n for s in loop.body for n in walk(s))
        if isinstance(stmt, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name.id for t in stmt.targets)
        and script.tree.is_after(name, stmt)
    ]
    if not before:
        return None
    last = script.tree.last(before)
    return last.value if len(before) == 1 or last in loop.body else None


def _is_number(node: ast.expr) -> bool:
    """`x.item()`, `float(x)`, `x.data[0]`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr == "item" and not node.args
        return isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "data"
    )
