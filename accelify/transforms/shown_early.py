"""Prints and progress bars that every process shows: above the Accelerator, and in modules that stay as they are.

print(options)                       (a finding: every process prints this)
accelerator = Accelerator()
features = helper.extract(images)    (a finding, where `extract` draws a bar)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.metrics.bars_elsewhere import bars_elsewhere
from accelify.analysis.modules.own_main import calls_of_other_mains
from accelify.analysis.syntax import call_keyword
from accelify.findings import Severity
from accelify.transforms import printing, progress
from accelify.transforms.base import Change, Context
from accelify.transforms.early import is_early, lines_at, scopes_above


def transform(context: Context) -> Iterator[Change]:
    """Yield one finding for the prints above the Accelerator, and one for the bars of other modules."""
    if context.plan.anchor is None or context.plan.reach is None:
        return
    elsewhere = calls_of_other_mains(context.script.modules[1:])
    above = scopes_above(context)
    prints = [c for c in context.script.calls() if _is_print(context, c) and c not in elsewhere]
    found = [c for c in prints if _is_run_by_all(context, c) and is_early(context, c, above)]
    early = context.tree.in_order(found)
    if early:
        at = lines_at({context.tree.line_of(call) for call in early})
        message = f"every process prints this, where there is no Accelerator to ask ({at})"
        yield context.change(printing.PRINT, early[0], message, severity=Severity.INFO)
    own, every = context.script.modules, context.script.program.modules.values()
    if not any(module.tree.mentions("tqdm") for module in every if module not in own):
        return
    calls = context.tree.in_order(c for c in context.script.calls() if _is_run_by_all(context, c))
    bars = list(bars_elsewhere(context.script, calls, context.effects.qualname))
    lines: dict[str, set[int]] = {}
    for _, module, line in bars:
        lines.setdefault(module.path.name if module.path is not None else module.name, set()).add(line)
    if bars:
        places = "; ".join(f"{path}, {lines_at(at)}" for path, at in sorted(lines.items()))
        message = f"every process draws the progress bars of functions of other modules ({places})"
        yield context.change(progress.PROGRESS, bars[0][0], message, severity=Severity.INFO)


def _is_run_by_all(context: Context, call: ast.Call) -> bool:
    return not (context.is_claimed(call) or context.is_guarded(call) or context.plan.on_main_only(call))


def _is_print(context: Context, call: ast.Call) -> bool:
    plain = isinstance(call.func, ast.Name) and call.func.id == "print" and call_keyword(call, "file") is None
    return plain and context.script.scope_of(call).resolve("print") is None
