"""Elements of which a statement chooses one by a value that is not known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.heap.containers import array_of, slots_of
from accelify.heap.values import BATCH, UNSET, Container, Ref, Value, is_zero

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def added_to_one(engine: Interpreter, stmt: ast.AugAssign, target: ast.Subscript, scope: Ref) -> bool:
    """`d[k]["n"] += x` where it may be any of several: what each gets goes with what chooses it.

    Args:
        engine: the engine.
        stmt: the statement.
        target: what it adds to.
        scope: where it stands.

    Returns:
        Whether it is such a statement.
    """
    run = engine.run
    base = engine.evaluate(target.value, scope)
    contained = base.of(Container)
    if not base.refs and base.type != BATCH:
        return _added_to_array(engine, stmt, target, scope)
    if not contained or isinstance(target.slice, ast.Slice):
        return False
    key = engine.evaluate(target.slice, scope)
    if len(contained) == 1 and key.const is not UNSET:
        return False
    slots = [slot for ref in contained for slot in slots_of(run, ref, key.const)]
    values = [run.read(*slot) or Value(const=0, token=slot) for slot in slots]
    if any(value.refs for value in values):
        return False
    added = engine.evaluate(stmt.value, scope)
    chosen = function((base.place, array_of(key)), rowwise=True)
    place = function((chosen, array_of(added)), rowwise=True, linearly=chosen.is_same)
    step = run.made(stmt, place, added, key, base, type_=added.type)
    for slot, value in zip(slots, values, strict=True):
        run.store.set(*slot, engine.expressions.operate(stmt, stmt.op, value, step))
    return True


def _added_to_array(engine: Interpreter, stmt: ast.AugAssign, target: ast.Subscript, scope: Ref) -> bool:
    """`table[i][j] += x` of an array or a tensor: it gets what is nothing everywhere else."""
    holder: ast.expr = target
    keys: list[Value] = []
    while isinstance(holder, ast.Subscript):
        keys.append(engine.evaluate(holder.slice, scope))
        holder = holder.value
    array = engine.evaluate(holder, scope)
    added = engine.evaluate(stmt.value, scope)
    if array.refs or array.type == BATCH or (array.token is None and not is_zero(array)):
        return False
    chosen = function(map(array_of, keys), rowwise=True)
    place = function((chosen, array_of(added)), rowwise=True, linearly=chosen.is_same)
    if place.is_same:
        return False
    step = engine.run.made(stmt, place, added, *keys, type_=added.type)
    engine.statements.bind_again(holder, engine.expressions.operate(stmt, stmt.op, array, step), scope)
    return True


__all__ = ["added_to_one"]
