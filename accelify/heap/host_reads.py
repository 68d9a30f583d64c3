"""Functions that read tensors on the host, which cannot lie on the device then."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.heap.axes import arguments_of, is_method
from accelify.heap.values import BATCH, DEVICE, TENSOR, Value
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.run import Run

# Of an operation: that it reads on the host.
READ = "read"


def _stacks(run: Run) -> bool:
    """Whether torch alone puts batches together: functions of the project make lists as well, such as of lengths."""
    texts = [module.text for module in run.modules]
    return any("DataLoader(" in text for text in texts) and not any("collate_fn" in text for text in texts)


def meet_host(
    run: Run, node: ast.AST, row: Row, args: Sequence[Value], keywords: Mapping[str, Value]
) -> None:
    """Record a function that reads on the host what lies on the device.

    A part of a batch is a tensor where torch puts batches together; what takes any argument may get its texts.
    """
    shift = int(is_method(row))
    for one in row.host:
        types = {TENSOR, BATCH} if not one.every and _stacks(run) else {TENSOR}
        for value in arguments_of(one, args, keywords, shift):
            if value.where == DEVICE and value.type in types:
                run.meet("together", node, run.segment(node), [value], detail=READ)
                return
