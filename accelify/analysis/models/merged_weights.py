"""Weights of a file that are merged into a model's state before the model loads it.

own = net.state_dict()
own.update({name: weight for name, weight in read.items() if name in own})    for name, weight in read.items():
net.load_state_dict(own)                                                           own[name] = weight
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, names_in, walk

_WORD = b".load_state_dict"
# Dictionaries that are made of one another: beyond this they are not followed.
_FARTHEST = 3


@dataclass(frozen=True, eq=False)
class Merged:
    """A `load_state_dict` of the model's state, into which other weights are merged before.

    Attributes:
        call: `net.load_state_dict(own)`.
        model: `net`.
        others: the dictionaries out of which others come, where they are put in: names, or entries of what is read.
    """

    call: ast.Call
    model: ast.expr
    others: tuple[ast.expr, ...]


def merged_weights(script: ScriptModel) -> Iterator[Merged]:
    """The places where a model loads its state with weights of another dictionary merged in."""
    for call in script.calls() if script.tree.mentions(_WORD) else ():
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
            continue
        state = call_argument(call, 0, "state_dict")
        if not isinstance(state, ast.Name) or not _is_own(script, state):
            continue
        others = [other for given in _put_into(script, state) for other in _made_of(script, given, _FARTHEST)]
        if others:
            yield Merged(call, call.func.value, tuple(others))


def _is_own(script: ScriptModel, state: ast.Name) -> bool:
    """Whether a name is assigned the result of a model's `state_dict()`, and nothing else."""
    made = [s.value for s in script.tree.assigns(state.id) if script.scope_of(s) is script.scope_of(state)]
    return bool(made) and all(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "state_dict"
        for value in made
    )


def _put_into(script: ScriptModel, state: ast.Name) -> Iterator[ast.expr]:
    """What a dictionary is updated with, and dictionaries over whose entries a loop iterates that sets its entries."""
    for node in script.scope_of(state).nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            if (
                isinstance(node.func.value, ast.Name)
                and node.func.value.id == state.id
                and len(node.args) == 1
            ):
                yield node.args[0]
        elif isinstance(node, ast.For) and (table := _table(node.iter)) is not None:
            if any(_sets_entry(inner, state.id) for stmt in node.body for inner in walk(stmt)):
                yield table


def _sets_entry(node: ast.AST, name: str) -> bool:
    """`own[name] = weight`, or `own[name].copy_(weight)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_":
        entry: ast.expr = node.func.value
    elif isinstance(node, ast.Assign):
        entry = node.targets[0]
    else:
        return False
    return isinstance(entry, ast.Subscript) and isinstance(entry.value, ast.Name) and entry.value.id == name


def _table(node: ast.expr) -> ast.expr | None:
    """`read` of `read.items()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        return node.func.value
    return None


def _made_of(script: ScriptModel, given: ast.expr, far: int) -> Iterator[ast.expr]:
    """The dictionaries out of which one is made, entry by entry."""
    if isinstance(given, ast.DictComp):
        table = _table(given.generators[0].iter)
        if table is not None and far:
            yield from _made_of(script, table, far - 1)
    elif isinstance(given, ast.Name):
        yield given
        for stmt in script.tree.assigns(given.id) if far else ():
            if script.scope_of(stmt) is script.scope_of(given) and isinstance(stmt.value, ast.DictComp):
                table = _table(stmt.value.generators[0].iter)
                if table is not None and not (isinstance(table, ast.Name) and table.id == given.id):
                    yield from _made_of(script, table, far - 1)
    elif isinstance(given, (ast.Subscript, ast.Call)):
        yield given


def taken_out_at(script: ScriptModel, merged: Merged, read: set[ast.Assign]) -> ast.Assign | None:
    """The one statement that takes the dictionary of weights out of what is read; None where it is not known.

    Args:
        script: the script.
        merged: where it is merged into a model's state.
        read: the assignments of what is read, or of a part of it.
    """
    names = {other.id for other in merged.others if isinstance(other, ast.Name)}
    scope = script.scope_of(merged.call)
    made = [s for s in read if script.scope_of(s) is scope and _target(s) in names]
    last = script.tree.last(made)
    if last is None or script.tree.is_before(merged.call, last):
        return None
    around = set(script.tree.ancestors(merged.call))
    choices = (ast.If, ast.For, ast.While, ast.Try, ast.ExceptHandler)
    if any(isinstance(a, choices) and a not in around for a in script.tree.ancestors(last)):
        return None
    before = [s for s in made if s is not last]
    used = names_in(last.value)
    return last if all(_target(s) in used for s in before) else None


def _target(stmt: ast.Assign) -> str:
    target = stmt.targets[0]
    return target.id if isinstance(target, ast.Name) and len(stmt.targets) == 1 else ""
