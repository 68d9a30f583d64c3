"""How a module of the standard library is written in the lines that are added at a node of a script."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node


def module_at(script: ScriptModel, node: Node, name: str) -> tuple[str, str | None]:
    """How a module is written where a node runs, and the import at the top of the file that this takes.

    Where its name is something else there (`logging = start_log(folder)` in the same function), or is bound later,
    another one is imported in addition: `std_logging`.

    Args:
        script: its model.
        node: near which, or in which, the module is used.
        name: of a module without dots.

    Returns:
        The name, and the line that imports it: None where it is there.
    """
    scope = script.scope_of(node)
    owner = scope.resolve(name)
    if owner is None:
        return name, f"import {name}"
    imports = [s for s in owner.of_type(ast.Import) if _binds(s, name) == name]
    if imports and not _is_bound_otherwise(owner, name):
        if owner is not scope or any(_comes_before(script, stmt, node) for stmt in imports):
            return name, None
        if owner.kind == "module":
            return name, f"import {name}"
    return _beside(script, scope, node, name)


def _binds(stmt: ast.Import, module: str) -> str | None:
    """The name under which a statement imports a module."""
    for alias in stmt.names:
        if alias.name == module or (alias.asname is None and alias.name.partition(".")[0] == module):
            return alias.asname or module
    return None


def _is_bound_otherwise(owner: Scope, name: str) -> bool:
    """Whether a statement in a scope other than `import name` binds a name to what may not be that module."""
    if any(argument.arg == name for argument in owner.parameters()):
        return True
    for node in owner.nodes:
        if isinstance(node, ast.Name):
            bound = node.id == name and not isinstance(node.ctx, ast.Load)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            same = isinstance(node, ast.Import) and _binds(node, name) == name
            bound = not same and any((a.asname or a.name.partition(".")[0]) == name for a in node.names)
        else:
            bound = getattr(node, "name", None) == name and not isinstance(node, ast.alias)
        if bound:
            return True
    return False


def _comes_before(script: ScriptModel, stmt: ast.Import, node: Node) -> bool:
    """Whether an import has run when a node of the same scope does.

    At the top of a file what is in front is enough: an import in an `if` or a `try` there is made for all of it.
    """
    tree = script.tree
    if tree.start(stmt) >= tree.start(node):
        return False
    return script.scope_of(stmt).kind == "module" or tree.parent(stmt) in [node, *tree.ancestors(node)]


def _beside(script: ScriptModel, scope: Scope, node: Node, name: str) -> tuple[str, str | None]:
    """Another name for a module: one that the file imports it by, or one that is free."""
    module = script.module_of(node).scopes.module
    known = [other for s in module.of_type(ast.Import) if (other := _binds(s, name))]
    for other in known:
        if other != name and scope.resolve(other) is module:
            return other, None
    free = f"std_{name}"
    while scope.resolve(free) is not None:
        free += "_"
    return free, f"import {name} as {free}"
