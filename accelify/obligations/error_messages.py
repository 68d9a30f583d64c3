"""Messages of a process that raises an error right after them: who fails says so, as a single process does."""

from __future__ import annotations

import ast
from functools import lru_cache

from accelify.heap.run import Event

MESSAGES = frozenset({"terminal.write", "log.write"})


def is_of_error(event: Event) -> bool:
    """Whether it is a message of a process that raises an error right after it."""
    tree = event.module.tree
    return event.kind in MESSAGES and tree is not None and event.node in _before_raise(tree, ends=_ENDS)


def is_of_caught_error(event: Event) -> bool:
    """Whether it is one in a handler that raises further, which the main process does not write for the others."""
    tree = event.module.tree
    if event.kind not in MESSAGES or tree is None or any(one.kind == "main" for one in event.guards):
        return False
    return event.node in _before_raise(tree, ends=_ENDS[1:])


_ENDS: tuple[type[ast.If | ast.ExceptHandler], ...] = (ast.If, ast.ExceptHandler)


@lru_cache(maxsize=64)
def _before_raise(tree: ast.Module, ends: tuple[type[ast.If | ast.ExceptHandler], ...]) -> frozenset[ast.AST]:
    """The calls that stand in a branch or handler of a module that ends by raising."""
    found = [one for one in ast.walk(tree) if isinstance(one, ends)]
    blocks = [block for one in found for block in (one.body, getattr(one, "orelse", [])) if block]
    raising = [block for block in blocks if isinstance(block[-1], ast.Raise)]
    return frozenset(stmt.value for block in raising for stmt in block if isinstance(stmt, ast.Expr))
