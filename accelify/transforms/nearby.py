"""Functions that get the Accelerator by one more parameter, only to show something."""

from __future__ import annotations

import ast
from collections.abc import Set

from accelify.analysis.scopes import Scope
from accelify.transforms.base import Context


def is_called_within_reach(context: Context, home: Scope) -> bool:
    """Whether every caller of a function, or every place that makes objects of a class, has the Accelerator."""
    init = next((s for s in home.children.values() if s.name.endswith("__init__")), None)
    calls = context.script.callers(home if home.kind == "function" else init or home)
    return home.kind != "module" and bool(calls) and all(map(context.reaches_cheaply, calls))


def is_run_by_all(context: Context, call: ast.Call, own_mains: Set[ast.AST]) -> bool:
    """Whether a call is reached from calls that every process makes, through any number of functions.

    Args:
        context: of the script.
        call: the call in question.
        own_mains: the calls that its imported modules make when they are started themselves.
    """
    script, reach = context.script, context.plan.reach
    if reach is None:
        return False
    queue, seen = [call], set[Scope]()
    while queue:
        one = queue.pop()
        if one in own_mains or not _is_made_by_all(context, one):
            continue
        scope = script.scope_of(one)
        if scope.kind in ("module", "class") or (not reach.is_global and context.reaches_cheaply(one)):
            return True
        if scope not in seen and scope not in script.dormant:
            seen.add(scope)
            queue += script.callers(scope)
    return False


def _is_made_by_all(context: Context, call: ast.Call) -> bool:
    """Whether every process that reaches a call makes it, without a guard, a turn or an error before it."""
    if context.is_guarded(call) or context.plan.on_main_only(call):
        return False
    around = context.tree.ancestors(call)
    return not any(isinstance(a, ast.ExceptHandler) or a in context.taking_turns for a in around)
