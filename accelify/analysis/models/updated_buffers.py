"""Buffers that a model moves on by its batch while it trains, and works its output out with: a codebook, a queue.

self.codes = decay * self.codes + (1 - decay) * chosen.t() @ x

Buffers are made alike on all processes by taking the main one's, so that what the batches of the others bring is lost.
The statistics of a batch norm are read when the model is evaluated, and of its own kind only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses.kept_in_losses import AGREEING, derived_from
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree, dotted, names_in, walk
from accelify.analysis.values import Class

_IN_PLACE = frozenset("copy_ add_ mul_ lerp_ index_copy_ index_add_ scatter_ scatter_add_ set_".split())


def updated_buffers(cls: Class, methods: list[Scope]) -> tuple[list[str], ast.stmt] | None:
    """The buffers of a class that a forward moves on by its batch and reads for its output, and the first such line.

    Args:
        cls: of a model.
        methods: its forward, and the methods that this calls.
    """
    buffers = {
        f"self.{call.args[0].value!s}"
        for method in cls.scope.children.values()
        for call in method.of_type(ast.Call)
        if dotted(call.func) == "self.register_buffer"
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    nodes = [n for method in methods for n in method.nodes] if buffers else []
    if any(isinstance(n, ast.Call) and getattr(n.func, "attr", "") in AGREEING for n in nodes):
        return None
    updates = [found for method in methods for found in _updates(method, buffers)] if buffers else []
    moved = {name for name, _ in updates}
    # `self.codes = self.weights / self.counts`
    made = [n for n in nodes if isinstance(n, ast.Assign) and dotted(n.targets[0]) in buffers - moved]
    updates += [(dotted(n.targets[0]) or "", n) for n in made if {dotted(a) for a in walk(n.value)} & moved]
    moved = {name for name, _ in updates}
    if not moved or not any(_reads(cls.module.tree, method, moved, updates) for method in methods):
        return None
    return list(dict.fromkeys(name for name, _ in updates)), updates[0][1]


def _updates(method: Scope, buffers: set[str]) -> Iterator[tuple[str, ast.stmt]]:
    """The statements of a method that set a buffer from what the method is given."""
    derived = derived_from(method, set(method.positional()[1:]))
    for node in method.nodes:
        if isinstance(node, ast.Assign):
            target: ast.expr = node.targets[0]
            value: ast.expr = node.value
            if isinstance(target, ast.Subscript):
                target = target.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            value = target = node.value
            # `self.codes.data.mul_(decay).add_(...)`
            while isinstance(target, ast.Call) and getattr(target.func, "attr", "") in _IN_PLACE:
                assert isinstance(target.func, ast.Attribute)
                target = target.func.value
        else:
            continue
        name = (dotted(target) or "").removesuffix(".data")
        if name in buffers and names_in(value) & derived:
            yield name, node


def _reads(tree: Tree, method: Scope, moved: set[str], updates: list[tuple[str, ast.stmt]]) -> bool:
    """Whether a method reads a buffer otherwise than to move it on, while the model trains too."""
    own = {n for _, stmt in updates for n in walk(stmt)}
    for node in method.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node in own:
            continue
        if dotted(node) in moved and not any(map(_asks_for_training, tree.ancestors(node))):
            return True
    return False


def _asks_for_training(node: ast.AST) -> bool:
    return isinstance(node, (ast.If, ast.IfExp)) and any(
        isinstance(n, ast.Attribute) and n.attr == "training" for n in walk(node.test)
    )


__all__ = ["updated_buffers"]
