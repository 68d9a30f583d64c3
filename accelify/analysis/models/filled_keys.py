"""Weights that are filled in under the names of the model's weights: they fit, whatever prefix those have.

state = model.state_dict()
state.update({name: given[k] for name, k in zip(list(state), given)})
model.load_state_dict(state)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, call_argument, dotted, walk

_SAME_ORDER = frozenset({"list", "tuple", "sorted", "reversed", "iter"})
_READ = frozenset({"keys", "items", "values", "get", "copy"})


def fills_own_names(callee: Scope, load: ast.Call, model: str) -> bool:
    """Whether what a function loads into a model is the model's `state_dict()`, changed under existing names only.

    Args:
        callee: the function.
        load: its `load_state_dict`.
        model: the parameter that is the model.
    """
    state = call_argument(load, 0, "state_dict")
    if not isinstance(state, ast.Name):
        return False
    name = state.id
    given = [n for n in callee.of_type(ast.Assign, ast.AnnAssign, ast.AugAssign) if _binds(n, name)]
    if len(given) != 1 or not isinstance(given[0], ast.Assign) or not _is_state_of(given[0].value, model):
        return False
    changes = list(_changes(callee, name))
    return bool(changes) and all(_is_own(callee, name, key, around) for key, around in changes)


def _binds(stmt: ast.Assign | ast.AnnAssign | ast.AugAssign, name: str) -> bool:
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _is_state_of(node: ast.expr, model: str) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == f"{model}.state_dict"


def _changes(callee: Scope, name: str) -> Iterator[tuple[ast.expr | None, ast.AST | None]]:
    """The keys under which a dictionary is changed, each with its comprehension; None for one that is not seen."""
    for node in callee.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and dotted(node.value) == name:
            yield node.slice, None
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and dotted(node.func.value) == name
        ):
            if node.func.attr == "update" and len(node.args) == 1 and isinstance(node.args[0], ast.DictComp):
                yield node.args[0].key, node.args[0]
            elif node.func.attr not in _READ:
                yield None, None


def _is_own(callee: Scope, name: str, key: ast.expr | None, around: ast.AST | None) -> bool:
    """Whether a key is one that the dictionary has, and is used for nothing else."""
    if isinstance(key, ast.Subscript):  # `keys[i]` of `keys = list(state)`
        contained = dotted(key.value)
        made = [n.value for n in callee.of_type(ast.Assign) if dotted(n.targets[0]) == contained]
        return bool(made) and all(_takes_from(ast.Name("key"), one, "key", name) for one in made)
    if not isinstance(key, ast.Name):
        return False
    if isinstance(around, ast.DictComp):
        loops: list[tuple[ast.expr, ast.expr]] = [(g.target, g.iter) for g in around.generators]
        inside = list(walk(around))
    else:
        own = [n for n in callee.of_type(ast.For) if any(part is key for part in walk(n))]
        loops = [(loop.target, loop.iter) for loop in own]
        inside = [n for loop in own for n in walk(loop)]
    if not any(_takes_from(target, taken, key.id, name) for target, taken in loops):
        return False
    retained = {
        node.slice for node in inside if isinstance(node, ast.Subscript) and dotted(node.value) == name
    }
    return all(
        node is key or node in retained
        for node in inside
        if isinstance(node, ast.Name) and node.id == key.id and isinstance(node.ctx, ast.Load)
    )


def _takes_from(target: ast.expr, taken: Node, key: str, name: str) -> bool:
    """Whether a loop takes a name from the keys of a dictionary: `for key, v in zip(state, given.values())`."""
    while isinstance(taken, (ast.Subscript, ast.Call)):
        if isinstance(taken, ast.Subscript):
            taken = taken.value
            continue
        func, pairs = dotted(taken.func), isinstance(target, ast.Tuple) and bool(taken.args)
        if isinstance(taken.func, ast.Attribute) and not taken.args:
            if taken.func.attr == "items" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            elif taken.func.attr != "keys":
                return False
            taken = taken.func.value
        elif func in _SAME_ORDER and taken.args:
            taken = taken.args[0]
        elif func == "enumerate" and isinstance(target, ast.Tuple) and pairs:
            target, taken = target.elts[-1], taken.args[0]
        elif func == "zip" and isinstance(target, ast.Tuple) and pairs:
            return any(_takes_from(t, a, key, name) for t, a in zip(target.elts, taken.args, strict=False))
        else:
            return False
    return isinstance(target, ast.Name) and target.id == key and dotted(taken) == name


__all__ = ["fills_own_names"]
