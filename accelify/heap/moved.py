"""What a script moves to the device, and a conversion leaves to `prepare`: whether it lies there where it is used.

The conversion says where such a move stood. What was moved is noted there, and is to be on the device at each use from
then on: prepared, or sent there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.domains.reasons import Reason
from accelify.heap.locations import AT, at, moved_to
from accelify.heap.values import BATCH, DEVICE, HOST, TENSOR, Container, Instance, Ref, Value, constant

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter
    from accelify.heap.run import Run

# Of a model: the move that put it on the device.
MOVED = "#moved"
_DEEPEST = 2
_MOVES = frozenset({"to", "cuda", "xpu"})
# What makes another model of one.
COPYING = frozenset({"torch.optim.swa_utils.AveragedModel"})


@dataclass(frozen=True)
class Mark:
    """A place where something was moved.

    Args:
        move: which one it was.
        receiver: its text.
        expr: what is evaluated for it, before a statement or after it; None where it is the value of an expression.
        after: whether it comes after the statement.
    """

    move: Hashable
    receiver: str
    expr: ast.expr | None = None
    after: bool = False


Marks = Mapping[ast.AST, Sequence[Mark]]
# Gives the marks in a file, of its path and tree.
MarksOf = Callable[[Path | None, ast.Module], Marks]


@dataclass
class Moved:
    """The moves that are gone: where each stood, which were come to, and the first use of what is not known to be on
    the device, by the move."""

    marks: dict[ast.AST, Sequence[Mark]] = field(default_factory=dict)
    come_to: dict[Hashable, Reason] = field(default_factory=dict)
    unplaced: dict[Hashable, Reason] = field(default_factory=dict)


def go_by(engine: Interpreter, marks: Iterable[Mark], scope: Ref, *, after: bool) -> None:
    """Look at what was moved beside a statement that is still there."""
    for mark in marks:
        if mark.expr is not None and mark.after is after and _is_bound(engine, mark.expr, scope):
            with engine.run.quiet():
                value = engine.evaluate(mark.expr, scope)
            was_moved(engine.run, value, mark.expr, [mark])


def _is_bound(engine: Interpreter, expr: ast.expr, scope: Ref) -> bool:
    names = [one.id for one in ast.walk(expr) if isinstance(one, ast.Name)]
    owners = [(engine.names.owner(name, scope), name) for name in names]
    return all(owner is not None and name in owner.fields for owner, name in owners)


def was_moved(run: Run, value: Value, node: ast.AST, marks: Iterable[Mark]) -> None:
    """Note that something was put on the device here."""
    if not run.recording or run.on_cpu:
        return
    for mark in marks:
        here = run.moved.come_to.setdefault(mark.move, Reason(mark.receiver, run.module.path, node.lineno))  # type: ignore[attr-defined]
        models = [ref for ref in value.of(Instance) if _may_be_model(ref)]
        for ref in models:
            _note(run, ref, mark)
        if not models and any(_is_elsewhere(one) for one in _tensors(value)):
            run.moved.unplaced.setdefault(mark.move, Reason(f"`{mark.receiver}`", here.path, here.line))


def _may_be_model(ref: Instance) -> bool:
    """Whether it is a model, or an object of which nothing is known."""
    return ref.kind == "module" or (ref.kind == "object" and ref.cls is None)


def _tensors(value: Value) -> list[Value]:
    """A tensor, or those in a list."""
    inside = [ref.looked_into() for ref in value.of(Container)]
    return [one for fields in inside for name, one in fields.items() if name[0] == "["] if inside else [value]


def _is_elsewhere(value: Value) -> bool:
    """Whether a tensor is not known to be on the device."""
    is_tensor = value.type in (TENSOR, BATCH) or not (value.place.is_same or value.refs)
    return is_tensor and value.where != DEVICE


def _note(run: Run, ref: Instance, mark: Mark, depth: int = 0) -> None:
    if ref.prepared or run.read(ref, "#prepared") is not None or at(run, ref) == DEVICE:
        return
    run.store.set(ref, MOVED, constant(mark))
    for part in _parts(run, ref) if depth < _DEEPEST else ():
        _note(run, part, mark, depth + 1)


def _parts(run: Run, ref: Instance) -> list[Instance]:
    run.store.look(ref)
    fields = [run.read(ref, name) for name in list(ref.fields) if name[0] != "#"]
    parts = [one for value in fields if value is not None for one in value.of(Instance)]
    return [part for part in parts if _may_be_model(part)]


def sent(run: Run, model: Instance, name: str, args: Sequence[Value]) -> None:
    """Note where a model is sent by one of its methods."""
    if name == "cpu" or name in _MOVES:
        where = HOST if name == "cpu" else DEVICE if name == "cuda" else moved_to([Value(), *args])
        run.store.set(model, AT, constant(where))
        if where == DEVICE:
            was_sent(run, model)


def was_sent(run: Run, ref: Instance, depth: int = 0) -> None:
    """Note that a model was put on the device, by prepare or by a move that is still there."""
    if not run.moved.marks:
        return
    if run.read(ref, MOVED) is not None:
        run.store.set(ref, MOVED, None)
    for part in _parts(run, ref) if depth < _DEEPEST else ():
        was_sent(run, part, depth + 1)


def is_used(run: Run, ref: Instance, node: ast.AST) -> None:
    """Look where a model lies that is called, copied, or passed to what is not known."""
    if not run.moved.marks or not run.recording:
        return
    known = None if ref.prepared else run.read(ref, MOVED)
    if known is None:
        return
    mark: Mark = known.const
    used = Reason(f"`{run.segment(node)}`", run.module.path, getattr(node, "lineno", 0))
    run.moved.unplaced.setdefault(mark.move, used)


def are_passed(run: Run, values: Iterable[Value], node: ast.AST) -> None:
    """Look at the models that something gets which may use or copy them."""
    for ref in [ref for value in values for ref in value.of(Instance)] if run.moved.marks else ():
        if _may_be_model(ref):
            is_used(run, ref, node)
