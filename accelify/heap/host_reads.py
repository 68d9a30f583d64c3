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
            if value.where == DEVICE and value.type in types and not _is_on_cpu(run, node):
                run.meet("together", node, run.segment(node), [value], detail=READ)
                return


def _is_on_cpu(run: Run, node: ast.AST) -> bool:
    """Whether only a process comes there whose device is the host: `if device.type == "cpu"`."""
    return any(
        part is node
        for one in (ast.walk(run.module.tree) if run.module.tree is not None else ())
        if isinstance(one, ast.If | ast.IfExp)
        for way in _ways_on_cpu(one)
        for part in ast.walk(way)
    )


def _ways_on_cpu(choice: ast.If | ast.IfExp) -> Sequence[ast.AST]:
    test = choice.test
    if not (isinstance(test, ast.Compare) and isinstance(test.comparators[0], ast.Constant)):
        return ()
    kind, is_equal = test.comparators[0].value, isinstance(test.ops[0], ast.Eq)
    if kind not in ("cpu", "cuda") or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return ()
    way = choice.body if is_equal == (kind == "cpu") else choice.orelse
    return way if isinstance(way, list) else [way]
