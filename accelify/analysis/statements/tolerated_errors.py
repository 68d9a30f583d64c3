"""Attempts to make what may exist already: whether the second process continues, by the `try` around the error."""

from __future__ import annotations

import ast
import builtins

from accelify.analysis.syntax import Node, Tree, dotted, walk

_EXITS = frozenset("sys.exit exit quit os._exit os.abort".split())


def goes_on(attempt: ast.Try) -> bool:
    """Whether a `try` continues after the error that a folder exists: its handler neither raises nor ends the run."""
    handler = _handler(attempt)
    if handler is None:
        return False
    last = handler.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    return not isinstance(last, ast.Raise) and not (
        isinstance(call, ast.Call) and dotted(call.func) in _EXITS
    )


def is_tolerated(tree: Tree, node: Node) -> bool:
    """Whether a statement is in the body of a `try` that goes on where what it makes is there."""
    return any(goes_on(attempt) for attempt in _attempts(tree, node))


def must_be_new(tree: Tree, node: Node) -> bool:
    """Whether a `try` around a statement ends the run for the very reason that what it makes is there."""
    handlers = [_handler(attempt) for attempt in _attempts(tree, node) if not goes_on(attempt)]
    words = {
        getattr(n, "attr", getattr(n, "id", "")) for handler in handlers if handler for n in walk(handler)
    }
    return bool(words & {"FileExistsError", "EEXIST"})


def _attempts(tree: Tree, node: Node) -> list[ast.Try]:
    """The `try`s around a node whose handlers its errors reach, in its function."""
    found: list[ast.Try] = []
    child: Node = node
    for ancestor in tree.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, ast.Try) and any(child is s for s in ancestor.body):
            found.append(ancestor)
        child = ancestor
    return found


def _handler(attempt: ast.Try) -> ast.ExceptHandler | None:
    """The first handler that catches the error that a file or folder is there, None where none does."""
    return next((handler for handler in attempt.handlers if _catches(handler.type)), None)


def _catches(kind: ast.expr | None) -> bool:
    if isinstance(kind, (ast.Tuple, ast.List)):
        return any(_catches(one) for one in kind.elts)
    known = getattr(builtins, dotted(kind) or "", None) if kind is not None else None
    # For an error that is not Python's it is not known what it catches.
    return not (isinstance(known, type) and issubclass(known, BaseException)) or issubclass(
        FileExistsError, known
    )
