"""What a module does only when it is started itself: its `if __name__ == "__main__":`, and the functions for that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis.syntax import Node, Tree, dotted, walk

if TYPE_CHECKING:
    from accelify.analysis.program import Module


def is_main_test(test: ast.expr) -> bool:
    """Whether a test asks if the module was started itself."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    return {dotted(s) or getattr(s, "value", None) for s in sides} == {"__name__", "__main__"}


def own_main(tree: Tree) -> ast.If | None:
    """The part of a module that runs when it is started itself."""
    if not tree.mentions(b"__main__"):
        return None
    return next((s for s in tree.module.body if isinstance(s, ast.If) and is_main_test(s.test)), None)


def only_for_main(module: Module, others: list[Module]) -> set[Node]:
    """The functions at the top of an imported module that only its own main block reaches."""
    guard = own_main(module.tree)
    if guard is None:
        return set()
    functions = {
        stmt.name: stmt
        for stmt in module.tree.module.body
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)) and not stmt.decorator_list
    }
    named = {name for other in others if other is not module for name in _named_outside(other)}
    for stmt in module.tree.module.body:
        if stmt is not guard and stmt not in functions.values():
            named |= set(_names(stmt))
    queue = [name for name in functions if name in named]
    reached = set(queue)
    while queue:
        for name in _names(functions[queue.pop()]):
            if name in functions and name not in reached:
                reached.add(name)
                queue.append(name)
    return {stmt for name, stmt in functions.items() if name not in reached}


def _named_outside(other: Module) -> Iterator[str]:
    """The names by which a module can mean something of another."""
    tree = other.tree
    for node in tree.nodes(ast.ImportFrom):
        if any(alias.name == "*" for alias in node.names):
            yield from (n.id for n in tree.nodes(ast.Name))
        yield from (alias.name for alias in node.names)
    yield from (n.attr for n in tree.nodes(ast.Attribute))
    yield from (n.value for n in tree.nodes(ast.Constant) if isinstance(n.value, str))


def _names(node: ast.AST) -> Iterator[str]:
    for inner in walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
