"""Samples that a DistributedSampler repeats, so that all processes have as many, in what an evaluation gathers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from accelify.domains.placement import Kind
from accelify.domains.reasons import Reason
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import array_of
from accelify.heap.counts import OF_BATCH
from accelify.heap.dividing import DISTRIBUTED
from accelify.heap.run import Event, why_of
from accelify.heap.values import Instance, Value
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import made

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHARES = frozenset({Kind.SHARD, Kind.ROUND})
# What leaves out what is there twice.
_ONCE = frozenset("dict drop_duplicates fromkeys set setdefault unique".split())


def padded(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A gather of what an evaluation has of each sample, with those that the sampler repeats.

    Args:
        event: the gather, by torch.distributed.
        events: all of the script.
    """
    of = _origin(event)
    if of is None or any(_origin(one) == of for one in events[: _number(event, events)]):
        return  # one finding for what is gathered of one loop
    loops = [loop for one in events for loop in one.loops if loop.place == of]
    samplers = {one for loop in loops if loop.loader is not None for one in _samplers(loop.loader)}
    if not samplers or any(loop.trains or loop.steps for loop in loops):
        return
    drops = {ref for one in events if one.kind == "sampler" and _drops(one) for ref in one.shown[0].refs}
    if not samplers & drops and not any(map(_is_cut, _functions(event, events))):
        text = (
            "the DistributedSampler fills up the shares with samples of the beginning, which count twice here; cut "
            "what is gathered to the length of the data, or leave them out by their numbers"
        )
        yield made(event, "gathered", Status.NAMED, text, Reason("the loop over the shares", *of))


def _number(event: Event, events: Sequence[Event]) -> int:
    return next(number for number, one in enumerate(events) if one is event)


def _origin(event: Event) -> tuple[str, int] | None:
    """Where the loop stands of whose rows something is gathered."""
    for value in event.shown if event.kind == "gathers" else ():
        place, why = array_of(value), why_of(value)
        origin = why.origin() if why is not None and place.rows and place.kind in _SHARES else None
        if origin is not None and origin.text.startswith(OF_BATCH):
            return origin.path, origin.line
    return None


def _samplers(loader: Instance) -> Iterator[Instance]:
    """The DistributedSamplers of a loader."""
    for one in (*(loader.wrapped or Value()).of(Instance), loader):
        for name in SAMPLERS:
            value = one.fields.get(f"#{name}") or Value()
            yield from (ref for ref in value.of(Instance) if ref.type in DISTRIBUTED and ref.cls is None)


def _drops(event: Event) -> bool:
    words = event.node.keywords if isinstance(event.node, ast.Call) else []
    return any(one.arg == "drop_last" and getattr(one.value, "value", True) for one in words)


def _functions(event: Event, events: Sequence[Event]) -> Iterator[ast.AST]:
    """The functions, or else modules, that an event is met in."""
    trees = {one.module.path: one.module.tree for one in events if one.module.tree is not None}
    for path, line in [(event.module.path, event.line), *event.via]:
        if path in trees:
            around = [one for one in _of_module(trees[path]) if one.lineno <= line <= (one.end_lineno or 0)]
            yield around[-1] if around else trees[path]


@lru_cache(maxsize=64)
def _of_module(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    return tuple(one for one in ast.walk(tree) if isinstance(one, _FUNCTIONS))


@lru_cache(maxsize=256)
def _is_cut(function: ast.AST) -> bool:
    """Whether some code cuts something to a length, or puts it in its place by a number, so that each is there once."""
    for one in ast.walk(function):
        if isinstance(one, ast.DictComp | ast.SetComp):
            return True
        if isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] in _ONCE and one.args:
            return True
        if isinstance(one, ast.Subscript):
            part = one.slice
            cuts = isinstance(part, ast.Slice) and part.lower is None and part.upper is not None
            if cuts or (isinstance(one.ctx, ast.Store) and not isinstance(part, ast.Constant | ast.Slice)):
                return True
    return False
