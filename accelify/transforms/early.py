"""What runs before there is an Accelerator, in the callers of the function that makes it."""

from __future__ import annotations

import ast
from collections.abc import Collection

from accelify.analysis.scopes import Scope
from accelify.transforms.base import Context

_SHOWN = 4  # lines of one file in a message


def scopes_above(context: Context) -> dict[Scope, ast.Call]:
    """The functions, and the module itself, that run the one which makes the Accelerator, or an object that does.

    Returns:
        for each of them its first call that leads there.
    """
    script, anchor = context.script, context.plan.anchor
    if anchor is None:
        return {}
    place = anchor.before or anchor.after
    queue = [] if place is None else [script.scope_of(place)]
    found: dict[Scope, ast.Call] = {}
    while queue:
        for call in script.callers(queue.pop()):
            scope = script.scope_of(call)
            if scope not in found:
                queue.append(scope)
            found[scope] = context.tree.first([found.get(scope, call), call])
    return found


def runs_first(context: Context, call: ast.Call, above: dict[Scope, ast.Call]) -> bool:
    """Whether a call is early, and is above what makes the Accelerator as well."""
    made = above.get(context.script.scope_of(call))
    return is_early(context, call, above) and (made is None or context.tree.is_before(call, made))


def is_early(context: Context, call: ast.Call, above: Collection[Scope]) -> bool:
    """Whether a call runs where there is no Accelerator to ask: above it, or in a caller of its function.

    Args:
        context: of the script.
        call: the call in question.
        above: the functions, and the module, that run the one which makes the Accelerator.
    """
    script, anchor = context.script, context.plan.anchor
    if anchor is None:
        return False
    if any(isinstance(a, (ast.ExceptHandler, ast.Lambda)) for a in context.tree.ancestors(call)):
        return False
    scope = script.scope_of(call)
    if scope is anchor.root and scope.kind == "function":
        return anchor.is_after(context.tree, call)
    if scope.kind != "module" and scope not in above:
        return False
    near = context.reaches_cheaply(call) and context.accelerator(call) is not None
    return not near and context.at_hand.expression(call) is None


def lines_at(numbers: set[int]) -> str:
    """The lines of one file as a message names them: `lines 3, 8`."""
    shown = [str(number) for number in sorted(numbers)]
    text = ", ".join(shown) if len(shown) <= _SHOWN else f"{', '.join(shown[:_SHOWN])} and others"
    return f"line{'s' if len(shown) > 1 else ''} {text}"
