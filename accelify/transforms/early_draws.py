"""Data that is drawn at random above the Accelerator, unseeded: named.

order = np.random.permutation(len(data))     (a finding: processes can draw different orders)
accelerator = Accelerator()
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.data.early_draws import early_draw
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, short
from accelify.transforms.sharding import UNSHARDED


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding at the first draw of data that processes can make differently."""
    anchor = context.plan.anchor
    if anchor is None or context.plan.known.distributed:
        return
    found = early_draw(context.script, anchor, context.effects.qualname)
    if found is None or context.is_guarded(found.shown):
        return
    drawn = f"`{short(found.module.tree.segment(found.call))}`"
    if found.module not in context.script.modules:
        path = found.module.path.name if found.module.path is not None else found.module.name
        drawn += f" ({path}:{found.call.lineno})"
    # accelify's own launcher begins all processes of one machine alike; no other does.
    unless = "" if context.for_accelerate else ", unless `accelify launch` starts them all on one machine"
    if found.seed is None:
        why, mending = "nothing seeds it", "seed it first"
    else:
        why, mending = f"its seed `{found.seed}` is drawn too", f"set `{found.seed}` yourself"
    message = (
        f"{drawn} draws from {found.generator} before the Accelerator is made, and {why}: every process "
        f"draws other numbers{unless}; {mending}, or make the Accelerator above"
    )
    severity = Severity.WARNING if context.for_accelerate else Severity.INFO
    yield context.change(UNSHARDED, found.shown, message, severity=severity)
