"""Where tensors lie: what a prepared loader gives on the device of the process, what is fetched on the host.

Nothing is said of any other tensor: where a location is not known, nothing is claimed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from accelify.heap.values import BATCH, DEVICE, HOST, TENSOR, Library, Value
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.run import Run

_TENSORS = frozenset({TENSOR, BATCH})
# Of the functions that go row by row, those that need their tensors in one place.
_TOGETHER = frozenset("eq ne lt gt le ge equal maximum minimum".split())
_JOINING = frozenset({"plus", "minus", "times", "over", "loss"})


def located(values: Iterable[Value]) -> str:
    """Where the result of an operation lies: where all its tensors do."""
    found = {value.where for value in values if value.where or value.type in _TENSORS or value.refs}
    return found.pop() if len(found) == 1 else ""


def location_of(row: Row, operands: Sequence[Value], result: Value) -> str:
    """Where the result of a library's function lies.

    Args:
        row: what is known of the function.
        operands: what it is given, its receiver first.
        result: what it gives.
    """
    if result.type != TENSOR:
        return ""
    word = row.name.rpartition(".")[2]
    if word in ("cpu", "cuda"):
        return HOST if word == "cpu" else DEVICE
    if word == "to" and row.place == "device":
        return _moved(operands)
    return "" if row.place in ("host", "device") else located(operands)


def _moved(operands: Sequence[Value]) -> str:
    """Where `x.to(...)` lies, by its first argument."""
    to = operands[1] if len(operands) > 1 else Value()
    if to.where == DEVICE and to.type not in _TENSORS:
        return DEVICE
    if isinstance(to.const, str):
        return HOST if to.const == "cpu" else DEVICE if to.const.startswith("cuda") else ""
    is_type = any(isinstance(ref, Library) and not ref.name.endswith("device") for ref in to.refs)
    return operands[0].where if is_type else ""


def meet_together(run: Run, node: ast.AST, values: Sequence[Value], row: Row | None = None) -> None:
    """Record an operation whose tensors lie on the host and on the device; single numbers may.

    Args:
        run: the abstract run.
        node: the operation.
        values: what it joins.
        row: the function that does, None for an operator.
    """
    if row is not None and not (row.transfer in _JOINING or row.name.rpartition(".")[2] in _TOGETHER):
        return
    tensors = [value for value in values if value.where and value.type in _TENSORS]
    host = [value for value in tensors if value.where == HOST and value.place.rows]
    device = [value for value in tensors if value.where == DEVICE]
    if host and device:
        run.meet("together", node, run.segment(node), [host[0], device[0]])


__all__ = ["located", "location_of", "meet_together"]
