"""Values that a model computes from the number of its forwards: a drop rate that rises, a margin that fades.

self.calls += 1
keep = max(1 - 0.1 / 40000 * self.calls, 0.9)

Of N processes each makes 1/N of the forwards of an epoch, and the model follows such a course N times slower.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted, is_constant, walk
from accelify.analysis.values import Class

# A share of the whole training, which as many processes have as much of.
_TOTAL = re.compile(r"total|steps|epoch|length|max_iter|num_iter", re.IGNORECASE)
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class ForwardCount(NamedTuple):
    """A class of models that counts its forwards, the attribute it does so in, and the line that counts."""

    cls: Class
    name: str
    place: ast.AugAssign


def forward_counts(script: ScriptModel) -> Iterator[ForwardCount]:
    """The models of the program that use a count of their forwards, one for each class."""
    counting = {id(tree): _counts_up(tree) for tree in {c.module.tree for c in script.interpreter.classes()}}
    for cls in script.interpreter.classes():
        if not counting[id(cls.module.tree)] or script.interpreter.kind_of_class(cls) != v.MODEL:
            continue
        forward = next((m for m in cls.scope.children.values() if m.name.endswith(".forward")), None)
        own = forward.self_name() if forward is not None else None
        if forward is None or own is None or _is_made_with_a_length(script, cls):
            continue
        for node in forward.nodes:
            if isinstance(node, ast.AugAssign) and _is_count(node, own):
                name = dotted(node.target) or ""
                if any(_makes_something(cls.module.tree, m, name) for m in cls.scope.children.values()):
                    yield ForwardCount(cls, name, node)
                    break


def _counts_up(tree: Tree) -> bool:
    return any(is_constant(n.value, 1) for n in tree.nodes(ast.AugAssign))


def _is_count(node: ast.AugAssign, own: str) -> bool:
    """`self.calls += 1`"""
    counted = isinstance(node.op, ast.Add) and is_constant(node.value, 1)
    return counted and isinstance(node.target, ast.Attribute) and dotted(node.target.value) == own


def _makes_something(tree: Tree, method: Scope, name: str) -> bool:
    """Whether a method computes with an attribute, or tests its size; something done every n rounds does not count."""
    for node in method.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or dotted(node) != name:
            continue
        around = tree.parent(node)
        if isinstance(around, ast.BinOp) and not isinstance(around.op, ast.Mod):
            whole: ast.AST = around
            while isinstance(outer := tree.parent(whole), (ast.BinOp, ast.Call)):
                whole = outer
        elif isinstance(around, ast.Compare) and isinstance(around.ops[0], _ORDERED):
            whole = around
        else:
            continue
        others = {dotted(n) or "" for n in walk(whole) if isinstance(n, (ast.Name, ast.Attribute))} - {name}
        first = isinstance(whole, ast.Compare) and any(is_constant(c, 0, 1) for c in whole.comparators)
        if not first and not any(_TOTAL.search(other) for other in others):
            return True
    return False


def _is_made_with_a_length(script: ScriptModel, cls: Class) -> bool:
    """Whether an object of a class is made with some length: a share of that may be what it asks for."""
    made = cls.method("__init__")
    return made is not None and any(
        isinstance(n, ast.Call) and dotted(n.func) == "len"
        for call in script.callers(made[1])
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        for n in walk(argument)
    )
