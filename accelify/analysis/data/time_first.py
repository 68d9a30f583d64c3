"""Outputs that have the time along their first axis, as the loss of a speech or text recogniser takes them."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel

TIME_FIRST = "a CTC loss takes the time first, and gathering joins along the first dimension"
_LOSSES = frozenset({"torch.nn.functional.ctc_loss", "torch.ctc_loss"})


def has_time_first(script: ScriptModel) -> bool:
    """Whether a CTC loss takes what a model gives: with the time first, which it exchanges itself or the script."""
    return any(_is_ctc(script, call) for call in script.calls())


def _is_ctc(script: ScriptModel, call: ast.Call) -> bool:
    made = script.entities(call.func, v.CRITERION)
    return script.qualname(call.func) in _LOSSES or any(
        (one.qualname or "").endswith(".CTCLoss") for one in made
    )
