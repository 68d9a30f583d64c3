"""Divisions of which another place of the script decides whether they are right."""

from __future__ import annotations

import ast

from accelify.domains.placement import CARRIED, Kind
from accelify.heap.containers import array_of
from accelify.heap.run import Run
from accelify.heap.values import PART, Value


def meet_division(run: Run, node: ast.AST, left: Value, right: Value) -> None:
    """Meet a division by a part of the rounds of each process, and one of two sums of each process's data.

    Args:
        run: the run.
        node: where it stands.
        left: what is divided.
        right: by what: how many samples a process has is no sum of its data, as each has as many.
    """
    if right.type == PART:
        run.meet("divide", node, "", [right])
    if run.checks and all(map(_is_sum, (left, right))) and not array_of(right).rows:
        run.meet("ratio", node, run.segment(node))


def _is_sum(value: Value) -> bool:
    """Whether it adds up over the rounds of each process: by an operator, or in place by a method."""
    place = array_of(value)
    return place.kind is Kind.LINEAR or (place.kind is Kind.ROUND and place.needs == CARRIED)
