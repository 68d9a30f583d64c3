"""Questions about a path whose answer changes nothing: those that only guard the making of a folder."""

from __future__ import annotations

import ast
import functools

_MAKING = ("mkdir", "makedirs")
_MAIN = ("is_main_process", "is_local_main_process")


def changes_nothing(file: str, line: int) -> bool:
    """Whether the statement there is an `if` after which other ranks than the main one do the same either way.

    In its body are folders made that may exist already, and what the main process alone does.
    """
    return line in _harmless_lines(file)


@functools.lru_cache(maxsize=256)
def _harmless_lines(file: str) -> frozenset[int]:
    try:
        with open(file, "rb") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    return frozenset(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and not node.orelse and all(map(_is_harmless, node.body))
    )


def _is_harmless(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    if isinstance(statement, ast.If):
        return not statement.orelse and (
            _asks_for_main(statement.test) or all(map(_is_harmless, statement.body))
        )
    if isinstance(statement, ast.With):
        return all(map(_is_harmless, statement.body))
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    call = statement.value
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    return name in _MAKING and any(
        keyword.arg == "exist_ok" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )


def _asks_for_main(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_asks_for_main, test.values))
    return isinstance(test, ast.Attribute) and test.attr in _MAIN
