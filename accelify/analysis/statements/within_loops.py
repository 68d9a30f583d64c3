"""What runs for the batches of some loops, in them or in functions that they call."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import TYPE_CHECKING

from accelify.analysis.scopes import Scope

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel


def runs_in(
    script: ScriptModel,
    node: ast.AST,
    loops: Set[ast.AST],
    seen: frozenset[Scope] = frozenset(),
) -> bool:
    """Whether a node runs for the batches of some loops, there or in a function that they call."""
    if any(a in loops for a in script.tree.ancestors(node)):
        return True
    scope = script.scope_of(node)
    calls = script.callers(scope) if scope.kind == "function" and scope not in seen else []
    return any(runs_in(script, call, loops, seen | {scope}) for call in calls)
