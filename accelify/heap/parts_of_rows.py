"""A part of an array by a subscript: which of its axes are taken whole, and where its rows lie after it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import ahead
from accelify.domains.placement import (
    BESIDE,
    CHOSEN_ROWS,
    SAMPLE,
    WIDE_ROWS,
    Kind,
    Placement,
    function,
    nearer,
    own,
)
from accelify.domains.replacing import replace
from accelify.heap import shapes
from accelify.heap.containers import array_of, element, is_index, takes_all
from accelify.heap.values import BATCH, MADE_HERE, PART_OF_ROWS, POSITIONS, TENSOR, Value

if TYPE_CHECKING:
    from accelify.heap.run import Run


def part_of(run: Run, node: ast.AST, base: Value, key: Value, at: ast.expr) -> Value:
    """What a subscript takes of an array."""
    if isinstance(at, ast.Tuple) and not at.elts:
        at = ast.Constant(...)  # `x[()]` is all of it
    parts = [*(at.elts if isinstance(at, ast.Tuple) else [at])]
    turned = base.place.turned
    if base.place.kind is Kind.ROUND and base.place.rows and not turned:
        if (wider := _with_axis(base.place, parts)) is not None:
            wider = shapes.counted(wider, shapes.of_subscript(base.place, parts))
            return run.made(node, wider, base, type_=TENSOR if base.type == BATCH else base.type)
    ahead = (
        isinstance(parts[0], ast.Constant) and parts[0].value is ...
    )  # whatever comes before the last axes
    whole = takes_all(parts[0 if ahead else turned :])
    first = key if not isinstance(at, ast.Tuple) else element(run, key, node, 0)
    linearly = not base.place.rows and array_of(key).is_same  # a part of figures
    keys = [] if isinstance(at, ast.Tuple) else [key.place]
    place = function((base.place, *keys), rowwise=whole, linearly=linearly)
    if base.place.kind is Kind.WIDE and base.place.rows and first.place.kind is Kind.SAMPLE:
        place = SAMPLE
    by_rows = key.place == WIDE_ROWS or (key.type == POSITIONS and key.place.kind is Kind.WIDE)
    if by_rows and base.place in (WIDE_ROWS, CHOSEN_ROWS):
        place = CHOSEN_ROWS  # those rows of all ranks that their rows choose
    if base.place.kind is Kind.SHARD and not whole and key.place.is_same:
        place = own("gathered first")
    if base.place.kind is Kind.ROUND:
        rows = base.place.rows and (whole or not is_index(at))
        chosen = not whole and (key.place.rows or key.type == POSITIONS) and not isinstance(at, ast.Tuple)
        # In a loop over the rows it may be a part of one of them.
        of_all = base.place.sure > 0 and not isinstance(getattr(node, "value", None), ast.Subscript)
        chosen = (chosen and (of_all or not run.by_rows())) or (
            of_all
            and not turned
            and base.place.sure > 1
            and (_leaves_out(parts[0]) or first.type == PART_OF_ROWS or _is_next(run, at))
        )
        chosen = chosen or (key.place.mixed and key.place.even)
        if of_all and not turned and isinstance(parts[0], ast.Slice) and parts[0].step is not None:
            run.assume(f"`{run.segment(node)}` has as many rows on every process as its step divides", node)
        place = replace(
            base.place,
            rows=rows,
            even=False,
            samples=None if chosen or (base.place.rows and not rows) else base.place.samples,
            mixed=base.place.mixed or chosen,
            sure=base.place.sure if whole and not (turned and ahead) else 0,
            form=base.place.form if all(takes_all([one]) for one in parts) else "",
            padded=base.place.padded and all(isinstance(one, ast.Slice) for one in parts),
        )
    if turned and not (ahead or isinstance(parts[0], ast.Slice)):
        place = nearer(place)  # an axis before that of the rows is gone
    place = shapes.counted(place, shapes.of_subscript(base.place, parts))
    type_ = TENSOR if base.type == BATCH else base.type
    if place.kind is Kind.ROUND and place.mixed and not base.place.mixed:
        text = f"`{run.segment(node)}` chooses among the rows of each process's batch"
        return run.cause(node, place, text, type_)
    made = run.made(node, place, base, key, type_=type_)
    # One number may go with either.
    where = "" if base.where == MADE_HERE and is_index(at) else base.where
    return made if made.where == where else replace(made, where=where)


def of_each_row(run: Run, value: Value) -> Value:
    """What a loop over the rows of this rank's batch makes of one of them, as a part of what it makes of them all."""
    run.depends()
    place = value.place
    if value.refs or not run.loops or run.loops[-1].samples.kind is not Kind.ROUND or place.rows:
        return value
    return (
        value.placed(replace(place, rows=True)) if place.kind is Kind.ROUND and place.samples == 0 else value
    )


def _with_axis(place: Placement, parts: list[ast.expr]) -> Placement | None:
    """Rows with an axis of one put in first (`x[None]`) or next to theirs (`x[:, None]`), None for other subscripts."""
    new = [isinstance(one, ast.Constant) and one.value is None for one in parts]
    if sum(new) != 1 or not all(
        takes_all([one]) for one, is_new in zip(parts, new, strict=True) if not is_new
    ):
        return None
    known = place.sure and not place.form
    if new[0]:
        return ahead(place)
    return replace(place, form=BESIDE if known and new[1] else place.form if not new[1] else "")


def _is_next(run: Run, at: ast.expr) -> bool:
    """Whether a subscript takes a row beside the one that a loop over the rows is at: `x[i + 1]`."""
    if not (isinstance(at, ast.BinOp) and isinstance(at.op, ast.Add | ast.Sub)):
        return False
    return isinstance(at.left, ast.Name) and isinstance(at.right, ast.Constant) and run.by_rows()


def _leaves_out(at: ast.expr) -> bool:
    """Whether a slice leaves out rows by their place: the first, or the last: `x[1:]`, `x[:-1]`."""
    if not isinstance(at, ast.Slice) or at.step is not None:
        return False
    lower, upper = at.lower, at.upper
    first = isinstance(lower, ast.Constant) and isinstance(lower.value, int) and lower.value > 0
    first = first or isinstance(lower, ast.UnaryOp)
    return first or (isinstance(upper, ast.UnaryOp) and isinstance(upper.operand, ast.Constant))
