"""Samplers and data sets that give each process its share by themselves, of a script that is written for several."""

from __future__ import annotations

import ast

from accelify.domains.placement import Kind, own
from accelify.domains.reasons import Reason
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import array_of
from accelify.heap.random_draws import SEEDED, UNSEEDED
from accelify.heap.run import Run, why_of
from accelify.heap.values import Class, Function, Instance, Ref, Value

_RANK = "the rank"
_ASKS = frozenset({"get_rank", "process_index"})
_SIZE, _SIZES = "the number of processes", frozenset({"get_world_size", "num_processes"})
_MOST_STEPS = 100
_MOST_NESTED = 3
# torch's sampler for several processes.
DISTRIBUTED = frozenset(
    f"torch.utils.data.{name}" for name in ("DistributedSampler", "distributed.DistributedSampler")
)
# Data sets and samplers that ask for the rank themselves.
_DIVIDING = DISTRIBUTED | {"streaming.StreamingDataset", "litdata.StreamingDataset"}


def shared_out(ref: Instance) -> Value | None:
    """What a data set or sampler of a library gives that shares itself out over the processes; None for another."""
    if ref.type not in _DIVIDING:
        return None
    text = f"`{ref.type}` gives each process its share"
    return Value(own(), Reason(text, parents=(Reason(_RANK), Reason(_SIZE))))


def by_rank(run: Run, ref: Instance, depth: int = 0, *, rows: bool = False) -> Value | None:
    """What of an object goes by the rank, so that it gives each process other items; None where nothing does.

    Args:
        run: the run.
        ref: a sampler, or a data set that is gone through in its own order.
        depth: in how many others it is, each of which goes through the next one.
        rows: only rows that it takes by the rank count, as it may have the rank for something else.
    """
    used = _used(ref)
    run.store.look(ref)
    for name in [name for name in ref.fields if name in used]:
        value = run.read(ref, name) or Value()
        why = value.why or why_of(value)
        place = array_of(value)
        of_rows = place.kind is Kind.SHARD or not rows
        if not place.is_uniform and of_rows and why is not None and any(s.text == _RANK for s in why.steps()):
            return value
        for inner in value.of(Instance) if depth < _MOST_NESTED else ():
            if _is_iterated(inner) and (found := by_rank(run, inner, depth + 1)) is not None:
                return found
    if ref.cls is not None and used & _ASKS and not rows:
        return Value(own(), run.reason(ref.cls.node, _RANK))
    return None


def _is_iterated(ref: Instance) -> bool:
    classes = [one for one in (ref.cls.line_up() if ref.cls is not None else ()) if isinstance(one, Class)]
    return any(getattr(stmt, "name", "") == "__iter__" for one in classes for stmt in one.node.body)


def divides(run: Run, loader: Ref) -> Reason | None:
    """Why a loader's data are each process's share already, by its rank and the number of processes; None where they
    are not known to be."""
    for name in (*SAMPLERS, "dataset"):
        data = run.read(loader, f"#{name}")
        if data is None:
            continue
        why = data.why or why_of(data)
        if not array_of(data).is_uniform and why is not None and _is_of(why, _RANK) and _is_of(why, _SIZE):
            return why
        for one in data.of(Instance):
            if (given := shared_out(one)) is not None:
                return given.why
            share = by_rank(run, one)
            values = [run.read(one, field) or Value() for field in _used(one) & one.fields.keys()]
            whys = [why for value in values if (why := value.why or why_of(value)) is not None]
            if share is not None and (any(_is_of(one, _SIZE) for one in whys) or _used(one) & _SIZES):
                return share.why
    return None


def _is_of(why: Reason, text: str) -> bool:
    waiting, seen = [why], set[int]()
    while waiting and len(seen) < _MOST_STEPS:
        step = waiting.pop()
        if step.text == text:
            return True
        waiting += [one for one in step.parents if id(one) not in seen]
        seen |= {id(one) for one in step.parents}
    return False


def drawn_at(item: Value, why: Reason | None) -> tuple[str, int] | None:
    """The file and line in which each process draws for itself what an item is made of, None where none does.

    Args:
        item: what a generator gives.
        why: the reason for its placement.
    """
    place, last = array_of(item), why.steps()[-1] if why is not None else None
    unseeded = last is not None and place.kind is Kind.OWN and last.text.endswith(UNSEEDED)
    drawn = place.needs == SEEDED or unseeded
    return (last.path, last.line) if drawn and last is not None else None


def goes_through(go: Function, path: str, line: int) -> bool:
    """Whether a generator gives its items in a loop over its data, and not before it is drawn which or in which order.

    Args:
        go: the generator.
        path: the file in which what an item is made of is drawn.
        line: its line there.
    """
    loops, waiting = list[ast.For](), list[ast.AST](getattr(go.node, "body", ()))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.For):
            loops.append(one)
        elif not isinstance(one, ast.While):  # one without end draws anew each time
            waiting += ast.iter_child_nodes(one)
    return any(
        any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(loop))
        and _names(loop.target) & {name for stmt in loop.body for name in _names(stmt)}
        and not (path == go.module.path and go.node.lineno <= line < loop.body[0].lineno)
        for loop in loops
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


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
