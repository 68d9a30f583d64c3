"""Messages of a process that raises an error right after them: who fails says so, as a single process does."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache

from accelify.heap.containers import array_of
from accelify.heap.run import Event

# What all processes get at once, and what ends one.
_INTERRUPTS = frozenset({"KeyboardInterrupt", "BaseException", "ImportError", "ModuleNotFoundError"})
_EXITS = frozenset({"exit", "_exit", "abort"})
MESSAGES = frozenset({"terminal.write", "log.write"})


def is_of_error(event: Event) -> bool:
    """Whether it is a message of a process that raises an error right after it, or one that shows what it has caught:
    of the main process alone, nobody would see what goes wrong on another."""
    tree = event.module.tree
    if event.kind not in MESSAGES or tree is None:
        return False
    if event.node in _before_raise(tree, ends=_ENDS) or event.node in _showing_caught(tree):
        return True
    own = any(not array_of(value).is_uniform for value in event.shown)
    return own and event.node in _in_handlers(tree)  # it says which of its data are to blame


def is_of_failing(event: Event, events: Sequence[Event]) -> bool:
    """Whether it is done by a process that raises an error further, or ends by one."""
    if event.module.tree is not None and event.node in _in_handlers(event.module.tree, raising=True):
        return True
    return ends_by_error(event, events)


def ends_by_error(event: Event, events: Sequence[Event]) -> bool:
    """Whether it is done by a process that ends in a loop by what it has caught there: an error of its own batch, and
    no interrupt, which all get.

    Args:
        event: what is done, in the handler or in what that calls.
        events: all of the script.
    """
    trees = {one.module.path: one.module.tree for one in (events if event.loops else ()) if one.module.tree}
    return any(
        first <= line <= last
        for path, line in [(event.module.path, event.line), *event.via]
        if path in trees
        for first, last in _ending(trees[path])
    )


@lru_cache(maxsize=64)
def _ending(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and last lines of the handlers in loops, or in functions, of a module that end the process."""
    return [
        (one.lineno, one.end_lineno or one.lineno)
        for around in ast.walk(tree)
        if isinstance(around, ast.For | ast.While | ast.FunctionDef)
        for one in ast.walk(around)
        if isinstance(one, ast.ExceptHandler) and one.type is not None
        if not _INTERRUPTS & {getattr(part, "id", "") for part in ast.walk(one.type)}
        if _ends(one.body[-1])
    ]


def _ends(stmt: ast.stmt) -> bool:
    """Whether a statement ends the process."""
    return isinstance(stmt, ast.Raise) or (
        isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and _word(stmt.value) in _EXITS
    )


@lru_cache(maxsize=64)
def _in_handlers(tree: ast.Module, *, raising: bool = False) -> frozenset[ast.AST]:
    """The calls in the handlers of a module, or in those that raise further."""
    found = [one for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler)]
    handlers = [one for one in found if not raising or isinstance(one.body[-1], ast.Raise)]
    return frozenset(one for part in handlers for one in ast.walk(part) if isinstance(one, ast.Call))


def is_of_caught_error(event: Event) -> bool:
    """Whether it is one in a handler that raises further, which the main process does not write for the others."""
    tree = event.module.tree
    if event.kind not in MESSAGES or tree is None or any(one.kind == "main" for one in event.guards):
        return False
    return event.node in _before_raise(tree, ends=_ENDS[1:])


_ENDS: tuple[type[ast.If | ast.ExceptHandler], ...] = (ast.If, ast.ExceptHandler)


# What shows the error that is being handled or that there is one, and what gives it.
_SHOWS = frozenset({"critical", "error", "exception", "print_exc", "print_exception"})
_GIVES = frozenset({"exc_info", "format_exc", "format_exception"})


@lru_cache(maxsize=64)
def _showing_caught(tree: ast.Module) -> frozenset[ast.AST]:
    """The calls in the handlers of a module that show the error or report one: `print(error)`, `logging.error("...")`;
    with one of them all of its handler, whose messages are of one error."""
    found = set[ast.AST]()
    for handler in (one for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler)):
        errors, shows = {handler.name}, False
        parts = [part for stmt in handler.body for part in ast.walk(stmt)]
        for one in parts:
            if isinstance(one, ast.Assign) and _is_made_of(one.value, errors):
                errors |= {
                    part.id for to in one.targets for part in ast.walk(to) if isinstance(part, ast.Name)
                }
            elif isinstance(one, ast.For) and _is_made_of(one.iter, errors):
                errors |= {part.id for part in ast.walk(one.target) if isinstance(part, ast.Name)}
            elif isinstance(one, ast.Call) and (_word(one) in _SHOWS or _is_made_of(one, errors)):
                shows = True
        found |= {one for one in parts if shows and isinstance(one, ast.Call)}
    return frozenset(found)


def _is_made_of(node: ast.expr, errors: set[str | None]) -> bool:
    """Whether an error, or what the interpreter gives of it, is in an expression."""
    return any(
        (isinstance(one, ast.Name) and one.id in errors)
        or (isinstance(one, ast.Call) and _word(one) in _GIVES)
        or (isinstance(one, ast.keyword) and one.arg == "exc_info")
        for one in ast.walk(node)
    )


def _word(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


@lru_cache(maxsize=64)
def _before_raise(tree: ast.Module, ends: tuple[type[ast.If | ast.ExceptHandler], ...]) -> frozenset[ast.AST]:
    """The calls that stand in a branch or handler of a module that ends by raising."""
    found = [one for one in ast.walk(tree) if isinstance(one, ends)]
    blocks = [block for one in found for block in (one.body, getattr(one, "orelse", [])) if block]
    raising = [block for block in blocks if isinstance(block[-1], ast.Raise)]
    return frozenset(stmt.value for block in raising for stmt in block if isinstance(stmt, ast.Expr))
