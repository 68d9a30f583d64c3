"""Samplers and data sets that give each process its share by themselves, of a script that is written for several."""

from __future__ import annotations

import ast

from accelify.domains.placement import own
from accelify.heap.containers import array_of
from accelify.heap.run import Run, why_of
from accelify.heap.values import Class, Instance, Value

_RANK = "the rank"
_ASKS = frozenset({"get_rank", "process_index"})


def by_rank(run: Run, ref: Instance) -> Value | None:
    """What of an object goes by the rank, so that it gives each process other items; None where nothing does.

    Args:
        run: the run.
        ref: a sampler, or a data set that is gone through in its own order.
    """
    used = _used(ref)
    run.store.look(ref)
    for name in [name for name in ref.fields if name in used]:
        value = run.read(ref, name) or Value()
        why = value.why or why_of(value)
        if not array_of(value).is_uniform and why is not None and any(s.text == _RANK for s in why.steps()):
            return value
    if ref.cls is not None and used & _ASKS:
        return Value(own(), run.reason(ref.cls.node, _RANK))
    return None


def _used(ref: Instance) -> set[str]:
    """The attributes and functions that an object's methods use, but for those of a text."""
    found = set[str]()
    line = ref.cls.line_up() if ref.cls is not None else []
    waiting: list[ast.AST] = [one.node for one in line if isinstance(one, Class)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found |= {node.id} & _ASKS
        if not isinstance(node, ast.JoinedStr):
            waiting += ast.iter_child_nodes(node)
    return found
