"""Learning rate schedules: the original's, for any number of processes.

scheduler.step(loss)    ->  scheduler.step(accelerator.reduce(loss, reduction="mean"))

Schedulers that step once a batch are prepared, and then advance by as many batches as all processes took together.
Those that step once an epoch are left as they are: an epoch is an epoch on any number of processes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule

PLATEAU = Rule(
    "ACC403",
    "A metric of one process's own steers the learning rate.",
    effort=5,
    done="gave the scheduler the metric of all processes",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a warning for each scheduler steered by a number that differs between processes."""
    script = context.script
    if not context.plan.shares_training_data:
        return
    for call in script.calls():
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == "step" and call.args):
            continue
        plateau = [
            t
            for t in script.entities(func.value, v.SCHEDULER)
            if (t.qualname or "").endswith("ReduceLROnPlateau")
        ]
        if plateau and not script.is_uniform(call.args[0]) and not context.gathered(call.args[0]):
            text = context.tree.segment(call.args[0])
            message = f"`{text}` can differ between processes, and so their learning rates"
            context.reported.add(call)
            edits = context.agreed(call.args[0])
            if edits:
                yield context.change(PLATEAU, call, message, edits, safety=Safety.REVIEW)
                continue
            yield context.todo(
                PLATEAU,
                call,
                message,
                'give every process the same number: accelerator.reduce(value, reduction="mean")'
                + (" of a tensor" if context.for_accelerate else ""),
            )
