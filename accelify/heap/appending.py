"""Arrays to whose end a loop puts rows, round for round."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accelify.domains.placement import WIDE_ROWS, Kind
from accelify.domains.rounds import APPENDED
from accelify.heap.containers import array_of, elements
from accelify.heap.values import Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_APPENDING = frozenset({"cat", "concat", "concatenate", "append"})


def appended(engine: Interpreter, node: ast.Call, args: Sequence[Value], result: Value, scope: Ref) -> Value:
    """What `x = torch.cat([x, rows])` gives where the rows are those of all ranks: it goes on from what x was.

    Args:
        engine: the engine.
        node: the call.
        args: what it gets.
        result: what it gives.
        scope: where it stands.
    """
    name = getattr(node.func, "attr", "")
    if name not in _APPENDING or not node.args or result.place.kind is Kind.OWN or node.keywords[1:]:
        return result
    first = node.args[0]
    parts, values = (
        (first.elts, elements(engine.run, args[0]) or [])
        if isinstance(first, ast.List | ast.Tuple)
        else (node.args, args)
    )
    if len(parts) != 2 or len(values) != 2 or not isinstance(parts[0], ast.Name | ast.Attribute):
        return result
    rows, base = array_of(values[1]), engine.evaluate(parts[0], scope)
    if base.token is None or base.delta is not None or base.refs or rows != WIDE_ROWS:
        return result
    return replace(result, token=base.token, delta=replace(rows, needs=APPENDED))


__all__ = ["appended"]
