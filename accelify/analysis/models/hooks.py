"""What hooks of the backward add up: figures of the batches that a process trains on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Function

# Of tensors, which a training step makes again, and of modules.
_OF_TENSORS = "register_hook"
_OF_MODULES = frozenset({"register_backward_hook", "register_full_backward_hook"})


def backward_hooks(script: ScriptModel, in_training: Callable[[ast.Call], bool]) -> Iterator[Scope]:
    """The functions that run in the backward of a training step.

    Args:
        script: its model.
        in_training: whether a call is made for the batches of a process's share.
    """
    if not script.tree.mentions(b"_hook(") and not any(m.tree.mentions(b"_hook(") for m in script.modules):
        return
    for call in script.calls():
        if not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
            continue
        if call.func.attr in _OF_MODULES or (call.func.attr == _OF_TENSORS and in_training(call)):
            yield from (w.scope for w in script.values(call.args[0]) if isinstance(w, Function))
