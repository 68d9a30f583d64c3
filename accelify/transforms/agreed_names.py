"""Statements and import that make all processes use the main process's name where one comes from the clock."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import handed_to
from accelify.analysis.statements.handed_options import holders, is_read_between, reads
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


def agreed_inside(context: Context, target: ast.expr) -> list[Edit]:
    """Edits that make the processes agree on an attribute, inside the function or constructor that receives the object
    and makes the Accelerator. None where the attribute is read before that, or may not exist."""
    script, tree, anchor = context.script, context.tree, context.plan.anchor
    place = anchor.before if anchor is not None else None
    if anchor is None or place is None or not isinstance(target, ast.Attribute):
        return []
    home, base = script.scope_of(place), dotted(target.value)
    calls = script.callers(home)
    if home.kind != "function" or len(calls) != 1 or script.called_from_elsewhere(home):
        return []
    call = calls[0]
    taken = [name for given, name in handed_to(call, home) if dotted(given) == base]
    if (
        len(taken) != 1
        or script.scope_of(call) is not script.scope_of(target)
        or not tree.is_after(call, target)
        or not _is_there(context, target)
        or not context.runs_everywhere(tree.statement(call))
        or is_read_between(script, target, call)
    ):
        return []
    name = taken[0]
    for node in home.nodes:
        before = isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and anchor.is_after(tree, node)
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return []
        if before and isinstance(node, ast.Attribute) and node.attr == target.attr:
            return []
        if (
            before
            and isinstance(node, ast.Call)
            and any(next(reads(one, target.attr), None) for one in holders(script, node, name))
        ):
            return []
    line = f"{name}.{target.attr} = broadcast_object_list([{name}.{target.attr}])[0]"
    return [InsertBefore(place, (line,), order=-49), agreement_import(context, place)]


def _is_there(context: Context, target: ast.Attribute) -> bool:
    """Whether an attribute exists on every path of the script: always set, or an option that the script defines."""
    stmt = context.tree.statement(target)
    if not any(
        isinstance(a, (ast.If, ast.For, ast.While, ast.Try)) and a is not context.script.main_guard
        for a in context.tree.ancestors(stmt)
    ):
        return True
    if isinstance(stmt, ast.AugAssign):
        return True
    flags = (
        a.value.lstrip("-").replace("-", "_")
        for call in context.tree.nodes(ast.Call)
        if getattr(call.func, "attr", "") == "add_argument"
        for a in [*call.args, *[kw.value for kw in call.keywords if kw.arg == "dest"]]
        if isinstance(a, ast.Constant) and isinstance(a.value, str)
    )
    return target.attr in flags
