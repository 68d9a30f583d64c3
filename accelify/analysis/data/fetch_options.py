"""Calls that download because of options: `make(root, **{"download": True})`, also by a name or from a table."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, Tree, call_keyword, is_constant

_DEEPEST = 4


def asks_to_download(tree: Tree, scope_of: Callable[[Node], Scope], call: ast.Call) -> bool:
    """Whether a call has `download=True`, as a keyword or in a dictionary of options.

    Args:
        tree: the module's.
        scope_of: the scope of a node of it.
        call: the call.
    """
    if is_constant(call_keyword(call, "download"), True):
        return True
    given = [keyword.value for keyword in call.keywords if keyword.arg is None] if call.keywords else ()
    return any(_says_so(options) for one in given for options in _tables(tree, scope_of, one, _DEEPEST))


def _says_so(table: ast.expr) -> bool:
    if isinstance(table, ast.Call):
        return is_constant(call_keyword(table, "download"), True)
    return isinstance(table, ast.Dict) and any(
        is_constant(key, "download") and is_constant(value, True)
        for key, value in zip(table.keys, table.values, strict=True)
    )


def _tables(
    tree: Tree, scope_of: Callable[[Node], Scope], node: ast.expr, left: int
) -> Iterator[ast.Dict | ast.Call]:
    """The dictionaries that an expression can be, as they are written down."""
    if isinstance(node, ast.Dict) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    ):
        yield node
        return
    inner: list[ast.expr] = []
    if isinstance(node, ast.Name):
        owner = scope_of(node).resolve(node.id)
        made = [s for s in tree.assigns(node.id) if scope_of(s).resolve(node.id) is owner]
        inner = [s.value for s in made] if owner is not None else []
    elif isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        for table in _tables(tree, scope_of, node.value, left - 1) if left else ():
            if isinstance(table, ast.Dict):
                inner += [
                    value
                    for name, value in zip(table.keys, table.values, strict=True)
                    if key is None or is_constant(name, key)
                ]
    elif isinstance(node, ast.IfExp):
        inner = [node.body, node.orelse]
    for one in inner if left else ():
        yield from _tables(tree, scope_of, one, left - 1)
