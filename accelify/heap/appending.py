"""Arrays to whose end a loop puts rows, round for round, and totals whose first round begins them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import ROUND_ROWS, WIDE_ROWS, unsure
from accelify.domains.replacing import replace
from accelify.domains.rounds import APPENDED, BEGUN
from accelify.heap.containers import array_of, elements
from accelify.heap.values import COUNTER, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_APPENDING = frozenset({"cat", "concat", "concatenate", "append", "vstack", "hstack"})
_ROWS = (WIDE_ROWS, ROUND_ROWS)


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
    if name not in _APPENDING or not node.args or node.keywords[1:]:
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
    if base.token is None or base.delta is not None or base.refs or unsure(rows) not in _ROWS:
        return result
    return replace(result, token=base.token, delta=replace(unsure(rows), needs=APPENDED))


def is_first(test: ast.expr, value: Value) -> bool:
    """Whether a condition may ask for the first round of a loop: `x is None`, `i == 0`, `len(x) > 0`, `i`, a flag."""
    if isinstance(test, ast.UnaryOp):
        return is_first(test.operand, value)
    if isinstance(test, ast.Name):
        return value.type in ("builtins.bool", COUNTER) and value.place.is_uniform
    last = test.comparators[-1] if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
    return isinstance(last, ast.Constant) and last.value in (None, 0)


def begun(one: Value | None, other: Value | None) -> tuple[Value | None, Value | None]:
    """What two ways leave of which one begins with what the other adds: it adds it to nothing."""
    if one is None or other is None or one.refs or other.refs:
        return one, other
    for first, more in ((one, other), (other, one)):
        step = None if more.delta is None or more.token is None else replace(more.delta, needs="")
        begins = first.token is None or (first.delta is not None and first.delta.needs == BEGUN)
        if begins and step is not None and unsure(replace(array_of(first), needs="")) == unsure(step):
            first = replace(first, token=more.token, delta=more.delta)
            return (first, other) if more is other else (one, first)
    return one, other
