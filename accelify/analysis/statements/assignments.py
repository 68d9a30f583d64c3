"""What an assignment is: a making, a second name, nothing; and whether a block always makes it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from accelify.analysis import knowledge as k
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree, dotted, text_of, walk


def blocks(stmt: ast.stmt) -> list[list[Any]]:
    """The blocks of statements inside a statement."""
    found = [getattr(stmt, name) for name in ("body", "orelse", "finalbody") if getattr(stmt, name, None)]
    for handler in getattr(stmt, "handlers", []):
        found.append(handler.body)
    return found


def is_none(stmt: ast.stmt) -> bool:
    """Whether an assignment assigns None."""
    value = getattr(stmt, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def is_alias(stmt: ast.stmt) -> bool:
    """Whether an assignment only gives an object a second name: `net = model`, `net = DataParallel(model)`."""
    value = getattr(stmt, "value", None)
    if isinstance(value, ast.Call) and value.args and _wraps(value):
        value = value.args[0]
    if isinstance(value, ast.IfExp):
        return isinstance(value.body, (ast.Name, ast.Attribute)) and isinstance(
            value.orelse, (ast.Name, ast.Attribute)
        )
    return isinstance(value, (ast.Name, ast.Attribute)) or (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in k.SELF_RETURNING
        and isinstance(value.func.value, (ast.Name, ast.Attribute))
    )


def is_unpacked(stmt: ast.stmt) -> bool:
    """Whether an assignment binds names to the elements of a container: `train, test = loaders`."""
    value = getattr(stmt, "value", None)
    unpacks = isinstance(stmt, ast.Assign) and any(isinstance(t, (ast.Tuple, ast.List)) for t in stmt.targets)
    return unpacks and isinstance(value, (ast.Name, ast.Attribute))


def gives_back(stmt: ast.stmt, name: str) -> bool:
    """Whether an assignment only assigns an object back to its name: `net = net.to(device)`."""
    value = getattr(stmt, "value", None)
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in k.SELF_RETURNING:
            value = value.func.value
        elif value.args and (_wraps(value) or (dotted(value.func) or "").endswith("compile")):
            value = value.args[0]
        else:
            return False
    return (dotted(value) or "").rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]


def _wraps(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    return name.endswith("DataParallel") or k.is_unread_wrapper(name, call)


def takes_to_host(stmt: ast.stmt, name: str) -> bool:
    """Whether an assignment takes a model out of its wrapper, to the host: `net = net.cpu().module`."""
    value, moved, bare = getattr(stmt, "value", None), False, False
    while isinstance(value, (ast.Call, ast.Attribute)) and dotted(value) != name:
        if isinstance(value, ast.Attribute):
            bare |= value.attr == "module"
            moved |= value.attr == "cpu"
            if value.attr != "module" and value.attr not in k.SELF_RETURNING:
                return False
            value = value.value
        else:
            moved |= any(isinstance(a, ast.Constant) and a.value == "cpu" for a in value.args)
            value = value.func
    return moved and bare and dotted(value) == name


def stands_in(node: ast.stmt, outer: ast.AST) -> bool:
    """Whether a statement is in another one, or is it."""
    if node is outer:
        return True
    first, last = getattr(outer, "lineno", None), getattr(outer, "end_lineno", None)
    if first is not None and last is not None and not first <= node.lineno <= last:
        return False  # seen without a walk
    return node in walk(outer)  # nodes are equal to themselves alone


def assigned_once(scope: Scope, node: ast.expr) -> ast.expr | None:
    """What a name of a function is assigned, once; another expression is itself."""
    if not isinstance(node, ast.Name):
        return node
    given = [
        s
        for s in scope.of_type(ast.Assign)
        if any(isinstance(t, ast.Name) and t.id == node.id for t in s.targets)
    ]
    return given[0].value if len(given) == 1 else None


def assigns_always(stmt: ast.stmt, assignments: list[ast.stmt]) -> bool:
    """Whether a statement is sure to make one of some assignments, or to leave."""
    if any(stmt is a for a in assignments):
        return True
    if isinstance(stmt, ast.If):
        return bool(stmt.orelse) and all(
            any(assigns_always(s, assignments) or leaves(s) for s in branch)
            for branch in (stmt.body, stmt.orelse)
        )
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return any(assigns_always(s, assignments) for s in stmt.body)
    if isinstance(stmt, ast.Try):
        return any(assigns_always(s, assignments) for s in [*stmt.body, *stmt.orelse, *stmt.finalbody])
    return False


def leaves(stmt: ast.stmt) -> bool:
    """Whether a statement ends its block's run."""
    if isinstance(stmt, (ast.Raise, ast.Return, ast.Continue, ast.Break)):
        return True
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        text = text_of(stmt.value.func)
        return text in ("sys.exit", "exit", "quit", "os._exit") or text.endswith(".error")
    return isinstance(stmt, ast.Assert) and isinstance(stmt.test, ast.Constant) and not stmt.test.value


def may_leave(tree: Tree, nodes: Iterable[ast.AST], start: int, read: ast.AST) -> bool:
    """Whether a run may leave between a place and what is read after it: `if args.evaluate: ...; return`.

    An error does not count: nothing continues after it on any path. Neither does the end of a loop, or of one of its
    rounds, which the read comes after.
    """
    around = set(tree.ancestors(read))

    def goes_on(last: ast.stmt) -> bool:
        loop = next(
            (a for a in tree.ancestors(last) if isinstance(a, (ast.For, ast.AsyncFor, ast.While))), None
        )
        return isinstance(last, ast.Raise) or (
            isinstance(last, (ast.Continue, ast.Break)) and loop not in around
        )

    return any(
        start < tree.start(node) < tree.start(read)
        and node not in around
        and any(
            branch and leaves(branch[-1]) and not goes_on(branch[-1]) for branch in (node.body, node.orelse)
        )
        for node in nodes
        if isinstance(node, ast.If)
    )
