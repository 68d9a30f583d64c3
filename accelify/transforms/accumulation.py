"""Gradient accumulation written by hand, replaced by the Accelerator's.

loss = loss / steps                     ->  with accelerator.accumulate(model):
loss.backward()                                 accelerator.backward(loss)
if (i + 1) % steps == 0:                        if accelerator.sync_gradients:
    optimizer.step()                                optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.schedules.windows import accumulates_by_hand, find_window
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit, InsertAfter, PutUnder

ACCUMULATE = Rule(
    "ACC112",
    "Gradients are reduced at every micro-batch of a window.",
    safety=Safety.REVIEW,
    effort=10,
    done="put accumulation by hand under accelerator.accumulate",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the accumulation window as the Accelerator's."""
    window = context.plan.accumulation
    if window is None:
        by_hand = accumulates_by_hand(context.script)
        if by_hand is not None:
            message = (
                "accumulated by hand, which stays right, but the gradients are reduced at every micro-batch"
            )
            why = find_window(context.script)
            message += f": not the Accelerator's, as {why}" if isinstance(why, str) else ""
            yield context.change(ACCUMULATE, by_hand.test, message, severity=Severity.INFO)
        return
    accelerator = context.accelerator(window.test)
    assert accelerator is not None
    edits: list[Edit] = [
        PutUnder(window.first, window.last, f"with {accelerator}.accumulate({', '.join(window.models)}):"),
        verbs.replace(window.test, f"{accelerator}.sync_gradients"),
    ]
    division = window.division
    assert division is not None
    assert window.backward is not None
    if division.statement is not None:
        edits.append(Delete(division.statement))
    else:
        edits.append(verbs.replace(division.whole, division.retained))
    for read in division.between:
        edits.append(verbs.replace(read, f"({read.id} / {window.divisor})"))
    if division.later:
        edits.append(InsertAfter(window.backward, (division.later,)))
    yield context.change(
        ACCUMULATE,
        window.test,
        "micro-batches are counted by hand: their gradients would be averaged in each",
        edits,
        core=True,
    )
