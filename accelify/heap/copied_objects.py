"""Copies of objects: with a prepared model in them, and of the dictionaries that their attributes are."""

from __future__ import annotations

import ast

from accelify.heap.fields import OF
from accelify.heap.locations import text_of
from accelify.heap.run import Run
from accelify.heap.values import Class, Container, Instance, Value

# How many objects a model may lie in.
_DEEPEST = 2


def of_copy(run: Run, value: Value, node: ast.AST) -> None:
    """Name a deep copy of what has a prepared model where a method of it, or of what it has, prepares an optimizer.

    Args:
        run: the abstract run.
        value: what is copied.
        node: the call.
    """
    objects = _objects(run, value)
    prepares = any(
        "optimizer" in line
        for one in objects
        for cls in (one.cls.line_up() if one.cls is not None else ())
        if isinstance(cls, Class)
        for line in text_of(cls).splitlines()
        if ".prepare(" in line or ".prepare_optimizer(" in line
    )
    if prepares and not run.at_model and any(one.kind == "module" and one.prepared for one in objects):
        text = (
            f"`{run.segment(node)}` copies a prepared model, which `prepare` does not know: the optimizer that the "
            "copy prepares is refused; let the copy prepare its model with it"
        )
        run.meet("misuse", node, text, detail="twice")


def _objects(run: Run, value: Value) -> list[Instance]:
    """What lies in a value, some objects down."""
    found: list[Instance] = []
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        found += [ref for ref in one.of(Instance) if ref not in found]
        if depth > _DEEPEST:
            continue
        own = (ref for ref in one.of(Instance) if ref.cls is not None and not ref.prepared)
        for ref in [*own, *one.of(Container)]:
            run.store.look(ref)
            inner = [run.read(ref, name) for name in list(ref.fields) if name[0] != "#"]
            waiting += [(part, depth + 1) for part in inner if part is not None]
    return found


def copied(run: Run, ref: Container, whole: Value) -> Value:
    """What `copy` gives of a dictionary: writes to a copy of an object's attributes are none to the object.

    Args:
        run: the abstract run.
        ref: the dictionary.
        whole: the value that it is.
    """
    if ref.slot(OF) is None:
        return whole
    made = run.passing("dict", run.shared_loops())
    for name, value in ref.looked_into().items():
        if name.startswith("["):
            run.store.set(made, name, value)
    return Value(refs=(made,), type="dict")
