"""What is put together of all ranks has a number of each of them, and cannot be taken as a single one."""

from __future__ import annotations

import ast

from accelify.domains.placement import EACH, ONE, Kind
from accelify.heap.containers import array_of
from accelify.heap.run import Run
from accelify.heap.values import TENSOR, Container, Value

_METHODS, _FUNCTIONS = (
    frozenset({"item", "__float__", "__int__"}),
    frozenset({"builtins.float", "builtins.int"}),
)


def of_call(run: Run, name: str, taken: Value | None, node: ast.AST) -> None:
    """Name a call that takes one number where there is one of each rank.

    Args:
        run: the abstract run.
        name: of a method, or of a function of a library with its module.
        taken: the receiver, or the first argument.
        node: the call.
    """
    if taken is None or name not in _METHODS | _FUNCTIONS or taken.of(Container):
        return
    place = array_of(taken)
    parts = place.kind is Kind.PARTS and place.form != ONE and taken.type in ("", TENSOR)
    if parts or place.form == EACH:
        text = (
            f"`{run.segment(node)}` fails on several processes: what is gathered has a number of each of them; "
            'use accelerator.reduce(.., reduction="mean"), or take the mean of what is gathered'
        )
        run.meet("misuse", node, text, [taken], detail="content")
