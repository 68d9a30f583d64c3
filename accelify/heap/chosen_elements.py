"""Elements of which a statement chooses one by a value that is not known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.heap.containers import array_of, has_one_each, slots_of
from accelify.heap.values import BATCH, UNSET, Container, Ref, Value, is_zero

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def added_to_one(engine: Interpreter, stmt: ast.AugAssign | ast.Assign, scope: Ref) -> bool:
    """`d[k]["n"] += x` where it may be any of several: what each gets goes with what chooses it.

    Args:
        engine: the engine.
        stmt: the statement; `d[k] = d.get(k, 0) + x` is one as well.
        scope: where it stands.

    Returns:
        Whether it is such a statement.
    """
    target = stmt.target if isinstance(stmt, ast.AugAssign) else stmt.targets[-1]
    more = _more(stmt, target) if isinstance(target, ast.Subscript) else None
    if more is None or not isinstance(target, ast.Subscript):
        return False
    run, (operator, given) = engine.run, more
    base = engine.evaluate(target.value, scope)
    contained = base.of(Container)
    if not base.refs and base.type != BATCH:
        return isinstance(stmt, ast.AugAssign) and _added_to_array(engine, stmt, target, scope)
    if not contained or isinstance(target.slice, ast.Slice):
        return False
    key = engine.evaluate(target.slice, scope)
    if (len(contained) == 1 and key.const is not UNSET) or has_one_each(run, base, key):
        return False
    slots = [slot for ref in contained for slot in slots_of(run, ref, key.const)]
    values = [run.read(*slot) or Value(const=0, token=slot) for slot in slots]
    if any(value.refs for value in values):
        return False
    added = engine.evaluate(given, scope)
    chosen = function((base.place, array_of(key)), rowwise=True)
    place = function((chosen, array_of(added)), rowwise=True, linearly=chosen.is_same)
    step = run.made(stmt, place, added, key, base, type_=added.type)
    for slot, value in zip(slots, values, strict=True):
        run.store.set(*slot, engine.expressions.operate(stmt, operator, value, step))
    return True


def _more(
    stmt: ast.AugAssign | ast.Assign, target: ast.Subscript
) -> tuple[ast.Add | ast.Sub, ast.expr] | None:
    """What a statement adds to an element, or takes from it; None for another one."""
    if isinstance(stmt, ast.AugAssign):
        return (stmt.op, stmt.value) if isinstance(stmt.op, ast.Add | ast.Sub) else None
    made = stmt.value
    if (
        len(stmt.targets) != 1
        or not isinstance(made, ast.BinOp)
        or not isinstance(made.op, ast.Add | ast.Sub)
    ):
        return None
    if _is_element(made.left, target):
        return made.op, made.right
    return (made.op, made.left) if isinstance(made.op, ast.Add) and _is_element(made.right, target) else None


def _is_element(node: ast.expr, target: ast.Subscript) -> bool:
    """Whether it is what stands where a statement writes to, or nothing: `d[k]`, `d.get(k, 0)`."""
    holder, key = None, None
    if isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
        begins = node.args[1]
        if node.func.attr == "get" and isinstance(begins, ast.Constant) and begins.value == 0:
            holder, key = node.func.value, node.args[0]
    if holder is None or key is None:
        return False
    return [ast.dump(one) for one in (holder, key)] == [ast.dump(one) for one in (target.value, target.slice)]


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
