"""Batches cut or drawn by hand: each process works on its share of them.

x, y = inputs[i : i + 32], targets[i : i + 32]    ->  x, y = inputs[i : i + 32], targets[i : i + 32]
                                                      x, y = accelerator.shard_batch(x, y)
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import InsertAfter

SHARD = Rule(
    "ACC115",
    "Every process would work on the whole of a batch that the script makes by hand.",
    safety=Safety.REVIEW,
    effort=15,
    done="split batches made by hand between the processes",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield `shard_batch` after the statement that completes a batch made by hand."""
    cut = context.plan.hand_cut
    if cut is None:
        return
    accelerator = context.accelerator(cut.after)
    names = ", ".join(cut.names)
    change = context.change(
        SHARD,
        cut.after,
        f"every process would work on all of {names}",
        [InsertAfter(cut.after, (f"{names} = {accelerator}.shard_batch({names})",))],
        core=True,
        evidence=(
            "the first dimension is that of the samples, and nothing in the loop needs the whole batch",
        ),
    )
    problem = "" if accelerator is not None else "the Accelerator cannot be had where the batches are made"
    yield Change(change.finding, change.edits, True, problem)
