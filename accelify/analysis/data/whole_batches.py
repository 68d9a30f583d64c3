"""Objects that receive a batch which every process sees whole, and later return what they computed from it.

for x, y in val_loader:           (not sharded)
    net.set_input(x, y)
    net.forward()
    total += net.get_loss()       (of this batch, and the same on every process)
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from accelify.analysis.metrics.figure_objects import filled
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.argument_places import parameters_for
from accelify.analysis.statements.enumerated import without_counter
from accelify.analysis.syntax import dotted, names_in, target_names, walk


def tells_of_whole_batch(
    script: ScriptModel, read: ast.expr, loops: Collection[ast.For | ast.AsyncFor]
) -> bool:
    """Whether what is read of an object is what it made of a batch of such a loop, further up in the same round.

    Args:
        script: its model.
        read: an attribute of the object, or a call of its method.
        loops: over data that every process sees whole.
    """
    asked = read.func if isinstance(read, ast.Call) else read
    loop = next(iter(script.enclosing_loops(read)), None) if isinstance(asked, ast.Attribute) else None
    if loop not in loops or not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    holder = dotted(asked.value)  # type: ignore[attr-defined]
    batch, start = _made_of_batch(script, loop), script.tree.start(read)
    return holder is not None and any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and dotted(call.func.value) == holder
        and script.tree.end(call) < start
        and _keeps(script, call, batch)
        for stmt in loop.body
        for call in walk(stmt)
    )


def _made_of_batch(script: ScriptModel, loop: ast.For | ast.AsyncFor) -> set[str]:
    """The variables of a loop that hold its batch, or what is made of that."""
    names = set(target_names(without_counter(script, loop)))
    for stmt in (n for s in loop.body for n in walk(s) if isinstance(n, ast.Assign)):
        if names_in(stmt.value) & names:
            names |= {name for target in stmt.targets for name in target_names(target)}
    return names


def _keeps(script: ScriptModel, call: ast.Call, names: set[str]) -> bool:
    """Whether a method stores what a call passes it of some variables."""
    handed = [a for a in (*call.args, *call.keywords) if names_in(a) & names]
    callees = script.callees(call) if handed else set()
    return bool(callees) and all(
        any(filled(callee, {name for a in handed for name in parameters_for(call, callee, a)}))
        for callee in callees
    )


__all__ = ["tells_of_whole_batch"]
