"""The functions in which processes meet: they train, gather, or read batches that are sharded."""

from __future__ import annotations

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Entity


def meeting_scopes(script: ScriptModel, prepared: set[Entity]) -> set[Scope]:
    """The functions that meet others, themselves or through what they call.

    Calls of modules that are not converted count as well: a log that has a reference to the trainer reads its figures.

    Args:
        script: the script.
        prepared: the objects that are passed to prepare, loaders among them.
    """
    callers = script.interpreter.callers
    loops = [loop for loop, loaders in script.loader_loops if loaders & prepared]
    reached = {script.scope_of(loop) for loop in loops} | script.training_scopes
    queue = list(reached)
    while queue:
        for module, call in callers.get(queue.pop(), []):
            scope = script.scope_in(module, call)
            if scope not in reached:
                reached.add(scope)
                queue.append(scope)
    return reached
