"""What the collate functions of the program put into a part of a batch, as it is written there.

def pad(rows):
    return pad_sequence(rows), [len(r) for r in rows]

def collate(batch):
    return {key: pad([b[key] for b in batch]) for key in batch[0]}

for batch in DataLoader(data, collate_fn=collate):
    text, lengths = batch["text"]        # `lengths` is a list of numbers, which has no `to` and no `cpu`
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.loaders import collating
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, target_names, walk
from accelify.analysis.values import Entity

_Bindings = Callable[[ast.Name], list[ast.stmt | None]]
# How many names and calls a part is followed through.
_DEEPEST = 6
_NUMBERS = frozenset({"len", "int", "float", "round", "str", "bool"})


def collated_parts(script: ScriptModel, bindings: _Bindings, node: ast.expr) -> list[ast.expr]:
    """What collate functions put into what a name holds; nothing where that is not seen for all of them.

    Args:
        script: its model.
        bindings: the statements that can have bound a name where it is read.
        node: the name, or an entry by a constant.
    """
    loaders, keys = _way(script, bindings, node, _DEEPEST)
    bodies = [body for loader in loaders for body in collating(script, loader)]
    found: list[ast.expr] = []
    for body in bodies:
        for result in _results(body):
            parts = _selected(script, body, result, keys, _DEEPEST)
            if not parts:
                return []
            found += parts
    return found


def are_lists(parts: list[ast.expr]) -> bool:
    """Whether all that a part can be is a list that is written out."""
    return bool(parts) and all(isinstance(one, (ast.List, ast.ListComp)) for one in parts)


def are_plain(parts: list[ast.expr]) -> bool:
    """Whether all that a part can be is a list of numbers or texts: `[len(r) for r in rows]`."""
    return bool(parts) and all(isinstance(one, ast.ListComp) and _is_plain(one.elt) for one in parts)


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_plain(node.left) and _is_plain(node.right)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in _NUMBERS
    sized = isinstance(node.func, ast.Attribute) and node.func.attr == "size" and bool(node.args)
    return sized or (isinstance(node.func, ast.Attribute) and node.func.attr == "item")


def _way(
    script: ScriptModel, bindings: _Bindings, node: ast.expr, left: int
) -> tuple[set[Entity], list[int | str]]:
    """The loaders of the batch that an expression is a part of, and the entries on the way to it."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        loaders, keys = _way(script, bindings, node.value, left - 1) if left else (set(), [])
        key = node.slice.value
        return (loaders, [*keys, key]) if isinstance(key, int | str) else (set(), [])
    bound = bindings(node) if isinstance(node, ast.Name) and left else []
    stmt = bound[0] if len(bound) == 1 else None
    if not isinstance(node, ast.Name):
        return set(), []
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        place = _place_in(stmt.targets[0], node.id)
        if place is None or (place and isinstance(stmt.value, ast.Tuple)):
            return set(), []
        loaders, keys = _way(script, bindings, stmt.value, left - 1)
        return loaders, [*keys, *place]
    if not isinstance(stmt, (ast.For, ast.AsyncFor)):
        return set(), []
    target, drawn = stmt.target, stmt.iter
    while isinstance(drawn, ast.Call) and drawn.args:
        name = dotted(drawn.func) or ""
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
        elif not k.is_progress(name):
            break
        drawn = drawn.args[0]
    place = _place_in(target, node.id)
    batches = script.entities(node, v.BATCH)
    for part in target.elts if isinstance(target, ast.Tuple) else []:
        batches = batches | script.entities(part, v.BATCH)
    loaders = {loader for batch in batches for loader in batch.link("loader")}
    return (loaders, [*place]) if place is not None else (set(), [])


def _place_in(target: ast.expr, name: str) -> list[int | str] | None:
    """The indices of a name in a target, None where it is not in it by itself."""
    if isinstance(target, ast.Name):
        return [] if target.id == name else None
    if not isinstance(target, (ast.Tuple, ast.List)):
        return None
    for index, part in enumerate(target.elts):
        if isinstance(part, ast.Starred):
            return None
        if name in target_names(part):
            inner = _place_in(part, name)
            return [index, *inner] if inner is not None else None
    return None


def _results(body: ast.AST) -> list[ast.expr]:
    if isinstance(body, ast.Lambda):
        return [body.body]
    return [n.value for n in walk(body) if isinstance(n, ast.Return) and n.value is not None]


def _selected(
    script: ScriptModel, body: ast.AST, node: ast.expr, keys: list[int | str], left: int
) -> list[ast.expr]:
    """What stands under some entries of what an expression of a function makes."""
    if not left:
        return []
    if isinstance(node, ast.Name):
        made = list(_assigned(body, node.id))
        found = [_selected(script, body, one, [*place, *keys], left - 1) for one, place in made]
        return [part for one in found for part in one] if all(found) else []
    if isinstance(node, ast.Call) and (scopes := script.callees(node)):
        found = [
            _selected(script, scope.node, result, keys, left - 1)
            for scope in scopes
            for result in _results(scope.node)
        ]
        return [part for one in found for part in one] if all(found) else []
    if not keys:
        return [node]
    key, rest = keys[0], keys[1:]
    if isinstance(node, ast.DictComp):
        return _selected(script, body, node.value, rest, left - 1)
    if isinstance(node, ast.Dict):
        entries = [
            value
            for name, value in zip(node.keys, node.values, strict=True)
            if isinstance(name, ast.Constant) and name.value == key
        ]
        return _selected(script, body, entries[-1], rest, left - 1) if entries else []
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int):
        inside = not any(isinstance(e, ast.Starred) for e in node.elts) and 0 <= key < len(node.elts)
        return _selected(script, body, node.elts[key], rest, left - 1) if inside else []
    return []


def _assigned(body: ast.AST, name: str) -> Iterator[tuple[ast.expr, list[int | str]]]:
    """What a function assigns to a name, and which entry of it that is."""
    for stmt in walk(body):
        if isinstance(stmt, ast.Assign):
            for target in stmt.targets:
                if (place := _place_in(target, name)) is not None:
                    yield stmt.value, place
