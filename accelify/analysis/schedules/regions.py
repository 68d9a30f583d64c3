"""Regions of mixed precision that a script assigns to a name before it opens them: `context = autocast(...)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.syntax import dotted

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel


def stored_region(script: ScriptModel, call: ast.Call) -> tuple[ast.Assign, list[ast.expr]] | None:
    """The statement that assigns a region, and where it is opened; None where something else is done with it.

    `context = autocast("cuda") if amp else nullcontext()`, and nothing but `with context:` afterwards.
    """
    node: ast.AST = call
    parent = script.tree.parent(call)
    if isinstance(parent, ast.IfExp):
        other = parent.orelse if parent.body is call else parent.body
        if not isinstance(other, ast.Call) or other.args or other.keywords:
            return None
        node, parent = parent, script.tree.parent(parent)
    if not isinstance(parent, ast.Assign) or parent.value is not node or len(parent.targets) != 1:
        return None
    target = parent.targets[0]
    text = dotted(target)
    if text is None or script.tree.in_fstring(call):
        return None
    own = [n for n in script.tree.nodes(type(target)) if dotted(n) == text and _same_place(script, n, target)]
    stores = [n for n in own if not isinstance(n.ctx, ast.Load)]
    opened = [n for n in own if isinstance(n.ctx, ast.Load)]
    if len(stores) != 1 or not all(isinstance(script.tree.parent(n), ast.withitem) for n in opened):
        return None
    return parent, opened


def _same_place(script: ScriptModel, one: ast.expr, other: ast.expr) -> bool:
    """Whether two uses of a name mean one variable, or two of an attribute the same class."""
    here, there = script.scope_of(one), script.scope_of(other)
    if isinstance(one, ast.Name) and isinstance(other, ast.Name):
        return here.resolve(one.id) is there.resolve(other.id)
    return here.owner_class is there.owner_class
