"""Batches that a script draws by hand: `next(batches)`."""

from __future__ import annotations

import ast

from accelify.heap.run import Run
from accelify.heap.values import Iterable, Value, written_arguments


def drawn(run: Run, over: Iterable, node: ast.AST) -> Value:
    """What `next` gives; that each process draws from all of a loader is noted.

    Args:
        run: the run.
        over: what it is given of.
        node: the call.
    """
    run.depends()
    if over.whole is not None and run.checks and run.loops:
        of = next(iter(written_arguments(node)), node)
        text = over.whole.text.replace(run.segment(node), run.segment(of))
        run.meet("draw of whole", node, "next", [Value(why=run.reason(node, text))])
    return over.item
