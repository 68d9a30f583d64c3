"""Statements and import that make all processes use the main process's name where one comes from the clock."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import dotted
from accelify.transforms.base import Context
from accelify.transforms.clock_paths import (
    Naming,
    naming_target,
    option_of_default,
)
from accelify.writer.edits import Edit, InsertBefore


def agreement_import(context: Context, stmt: ast.stmt) -> Edit:
    """The import of what makes the processes agree, for a statement's module."""
    package = "accelerate.utils" if context.for_accelerate else "accelify.runtime"
    return context.import_for(stmt, f"from {package} import broadcast_object_list")


def agreed_later(context: Context, stmt: Naming) -> list[Edit]:
    """Edits that make the processes agree on a name once there is an Accelerator: it, or the option it is the default
    of. None where it went elsewhere by then."""
    tree, anchor = context.tree, context.plan.anchor
    assert anchor is not None
    place, name = anchor.before, dotted(naming_target(stmt))
    if place is None or name is None or all(stmt is not s for s in anchor.block):
        return []
    between = [
        node
        for node in [*tree.nodes(ast.Name), *tree.nodes(ast.Attribute)]
        if dotted(node) == name and isinstance(node.ctx, ast.Load)
        if tree.is_after(node, stmt) and anchor.is_after(tree, node)
    ]
    options = {option_of_default(node, ancestor) for node in between for ancestor in tree.ancestors(node)} - {
        None
    }
    if options:
        parsed = [
            s.targets[0].id
            for s in anchor.block
            if isinstance(s, ast.Assign)
            and isinstance(s.targets[0], ast.Name)
            and isinstance(s.value, ast.Call)
            and getattr(s.value.func, "attr", "") == "parse_args"
            and anchor.is_after(tree, s)
        ]
        if len(options) > 1 or len(between) > 1 or len(parsed) != 1:
            return []
        name = f"{parsed[0]}.{options.pop()}"
    elif between:
        return []
    line = f"{name} = broadcast_object_list([{name}])[0]"
    return [InsertBefore(place, (line,), order=-49), agreement_import(context, stmt)]
