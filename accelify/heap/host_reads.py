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


def meet_host(
    run: Run, node: ast.AST, row: Row, args: Sequence[Value], keywords: Mapping[str, Value]
) -> None:
    """Record a function that reads on the host what lies on the device; what takes all may get texts of a batch."""
    shift = int(is_method(row))
    for one in row.host:
        types = {TENSOR} if one.every else {TENSOR, BATCH}
        for value in arguments_of(one, args, keywords, shift):
            if value.where == DEVICE and value.type in types:
                run.meet("together", node, run.segment(node), [value], detail=READ)
                return
