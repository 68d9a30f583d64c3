"""What all processes do together after they have left their process group, which then raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from accelify.domains.reasons import Reason
from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.runs import imports_own_runtime
from accelify.obligations.sinks import made

# What leaves the group, what joins one again, and what asks whether there is one.
_LEAVING = frozenset({"end_training", "destroy_process_group"})
_JOINING = frozenset({"Accelerator", "PartialState", "init_process_group"})
_ASKING = "is_initialized"
# What needs no group.
_ALONE = frozenset({*_LEAVING, "clear", "free_memory"})
# How many functions are looked into, each called in the one before.
_DEEPEST = 3
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def after_leaving(event: Event) -> Iterator[Obligation]:
    """A collective that comes after the processes have left their group, in the same block or in what that calls.

    Args:
        event: of a script that is written for several processes.
    """
    tree, word = event.module.tree, event.name.rpartition(".")[2]
    if event.kind != "collective" or word in _ALONE or tree is None:
        return
    lines = [event.line, *(line for path, line in event.via if path == event.module.path)]
    for leaving, first, last in _left(tree):
        if any(first <= line <= last for line in lines):
            why = Reason(f"`{ast.unparse(leaving)}`", event.module.path, leaving.lineno)
            text = (
                f"`{event.name}` comes after the processes have left their group, and raises; call it before"
            )
            yield made(event, "all ranks", Status.NAMED, text, why)
            return


@lru_cache(maxsize=64)
def _left(tree: ast.Module) -> list[tuple[ast.expr, int, int]]:
    """The calls that leave the process group, each with the first and last line of statements after it."""
    found = list[tuple[ast.expr, int, int]]()
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    blocks = (getattr(one, name, None) for one in ast.walk(tree) for name in ("body", "orelse", "finalbody"))
    for block in [] if imports_own_runtime(tree) else [one for one in blocks if isinstance(one, list)]:
        leaving: ast.expr | None = None
        for stmt in block:
            words = _words(stmt)
            if leaving is not None and not (
                words & _JOINING or _ASKING in words or isinstance(stmt, _DEFINING)
            ):
                found.append((leaving, stmt.lineno, stmt.end_lineno or stmt.lineno))
            leaving = _leaving_in(stmt, functions) or leaving
            leaving = None if words & _JOINING else leaving
    return found


def _leaving_in(stmt: ast.stmt, functions: Mapping[str, ast.FunctionDef], depth: int = 0) -> ast.expr | None:
    """The call by which a statement leaves the group: by itself, in a function of the module, or where there is one."""
    if isinstance(stmt, ast.If) and not stmt.orelse and _ASKING in _words(stmt.test):
        asks_for_none = isinstance(stmt.test, ast.UnaryOp)
        inner = (_leaving_in(one, functions, depth) for one in stmt.body if not asks_for_none)
        return next((one for one in inner if one is not None), None)
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return None
    called = ast.unparse(stmt.value.func)
    function = functions.get(called) if depth < _DEEPEST else None
    leaves = called.rpartition(".")[2] in _LEAVING or (
        function is not None
        and any(_leaving_in(one, functions, depth + 1) for one in function.body)
        and not _words(function) & _JOINING
    )
    return stmt.value if leaves else None


def _words(stmt: ast.AST) -> set[str]:
    return {getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(stmt)}
