"""Tests that processes answer by what they find at their own time: the clock, and whether there is a file.

`time.time() - start > limit` is true on one process before others, and so is `os.path.exists("stop")`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.files.effects import CLOCKS
from accelify.analysis.statements.reaching_assignments import reaching_assignments
from accelify.analysis.syntax import walk

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ON_DISK = frozenset("os.path.exists os.path.lexists os.path.isfile os.path.isdir os.access".split())
_ON_PATHS = frozenset({"exists", "is_file", "is_dir"})
# How many names are between a test and the clock at most.
_DEEPEST = 3


def has_clocks(script: ScriptModel) -> bool:
    """Whether a script asks for the time at all."""
    return bool(script.calls_to(CLOCKS))


def asks_clock(script: ScriptModel, test: ast.expr) -> bool:
    """Whether a test compares what a clock shows with something, directly or by names that hold it."""
    return any(
        isinstance(compare, ast.Compare)
        and any(isinstance(op, _ORDER) for op in compare.ops)
        and any(_tells_time(script, side, 0) for side in (compare.left, *compare.comparators))
        for compare in walk(test)
    )


def asks_for_file(script: ScriptModel, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test asks if there is a file, directly or by a name that holds the answer."""
    for node in walk(test):
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Attribute) and node.func.attr in _ON_PATHS
            if script.qualname(node.func) in _ON_DISK or (named and not node.args and not node.keywords):
                return True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and depth < _DEEPEST:
            made = reaching_assignments(script, node) or []
            if any(asks_for_file(script, stmt.value, depth + 1) for stmt in made):
                return True
    return False


def _tells_time(script: ScriptModel, value: ast.expr, depth: int) -> bool:
    for node in walk(value):
        if isinstance(node, ast.Call):
            if script.qualname(node.func) in CLOCKS:
                return True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and depth < _DEEPEST:
            made = reaching_assignments(script, node) or _assigned_around(script, node)
            if any(_tells_time(script, stmt.value, depth + 1) for stmt in made):
                return True
    return False


def _assigned_around(script: ScriptModel, name: ast.Name) -> list[ast.Assign]:
    """Where a function gives the module's variable its value, or the same variable in several ways: all of them."""
    scope = script.scope_of(name).resolve(name.id)
    made = [stmt for stmt in script.tree.assigns(name.id) if script.scope_of(stmt).resolve(name.id) is scope]
    every = [n for n in script.tree.writes(name.id) if script.scope_of(n).resolve(name.id) is scope]
    # A loop's counter, or a sum, of the same name may be what is read.
    return made if len(every) == len(made) else []
