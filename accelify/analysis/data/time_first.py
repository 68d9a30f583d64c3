"""Outputs that have the time along their first axis, as the loss of a speech or text recogniser takes them."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching import last_assignment
from accelify.analysis.syntax import call_argument, walk

TIME_FIRST = "what the model gives has the time first, as its CTC loss takes it"
_LOSSES = frozenset({"torch.nn.functional.ctc_loss", "torch.ctc_loss"})
_TURNING = frozenset(
    {"permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "rearrange"}
)


def has_time_first(script: ScriptModel) -> bool:
    """Whether a CTC loss takes what a model gives as it is, and so with the time first."""
    given = [call_argument(call, 0, "log_probs") for call in script.calls() if _is_ctc(script, call)]
    return any(one is not None and not _is_turned(script, one, set()) for one in given)


def _is_ctc(script: ScriptModel, call: ast.Call) -> bool:
    made = script.entities(call.func, v.CRITERION)
    return script.qualname(call.func) in _LOSSES or any(
        (one.qualname or "").endswith(".CTCLoss") for one in made
    )


def _is_turned(script: ScriptModel, node: ast.expr, seen: set[ast.stmt]) -> bool:
    """Whether axes are exchanged between the model's call and here."""
    inner = list(walk(node))
    if any(getattr(one, "attr", getattr(one, "id", "")) in _TURNING for one in inner):
        return True
    if any(isinstance(one, ast.Call) and script.entities(one.func, v.MODEL) for one in inner):
        return False
    for name in [one for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]:
        made = last_assignment(script.tree, name)
        if made is not None and made not in seen:
            if _is_turned(script, made.value, seen | {made}):
                return True
    return False
