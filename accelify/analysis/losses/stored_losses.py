"""Loops that store the loss of each batch in an attribute, for a backward that they reach by a name.

for x, y in loader:
    self.loss = criterion(self.model(x), y)
    self.call_hooks("after_batch")           # of which one says trainer.loss.backward()
"""

from __future__ import annotations

import ast

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk

_FARTHEST = 2  # calls between the loop and that


def keeps_loss(script: ScriptModel, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop gives an attribute, that is called backward by this name, and then calls something by a text."""
    names = {b.loss.attr for b in script.backwards if isinstance(b.loss, ast.Attribute)}
    inside = [n for stmt in loop.body for n in walk(stmt)] if names else []
    retained = [n for n in inside if isinstance(n, ast.Attribute) and n.attr in names]
    if not any(isinstance(n.ctx, ast.Store) and not script.is_without_gradients(n) for n in retained):
        return False
    return any(isinstance(n, ast.Call) and _calls_by_text(script, n) for n in inside)


def _calls_by_text(script: ScriptModel, call: ast.Call, far: int = _FARTHEST) -> bool:
    """Whether a call, or the functions that it runs, reaches `getattr(hook, name)(self)`."""
    if isinstance(call.func, ast.Call) and dotted(call.func.func) == "getattr":
        return True
    inner = (n for s in script.callees(call) for n in s.calls) if far else ()
    return any(_calls_by_text(script, one, far - 1) for one in inner)


__all__ = ["keeps_loss"]
