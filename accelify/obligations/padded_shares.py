"""Samples that a DistributedSampler or a prepared loader repeats, so that all processes have as many, in what an
evaluation gathers or counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from accelify.domains.placement import Kind
from accelify.domains.reasons import Reason
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import array_of
from accelify.heap.counts import COUNTS
from accelify.heap.dividing import DISTRIBUTED
from accelify.heap.run import Event, why_of
from accelify.heap.values import OF_BATCH, Instance, ModuleRef, Value
from accelify.obligations.drawn_batches import ADDED
from accelify.obligations.loaded_weights import bindings
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.sinks import made

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ACCELERATOR = "accelerator."
_MOST_STEPS, _MOST_MADE_OF, _PROCESSES = 100, 5, 8
_SHARES = frozenset({Kind.SHARD, Kind.ROUND})
# What leaves out what is there twice.
_ONCE = frozenset("dict drop_duplicates fromkeys set setdefault unique".split())


def padded(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A gather of what an evaluation has of each sample, with those that the sampler repeats, or a sum of what it has
    counted of them.

    Args:
        event: the gather or the reduction.
        events: all of the script.
    """
    of = _origin(event)
    if of is None or any(_origin(one) == of for one in events[: _number(event, events)]):
        return  # one finding for what is put together of one loop
    loops = [loop for one in events for loop in one.loops if loop.place == of]
    if any(loop.trains or loop.steps for loop in loops) or any(map(_is_cut, _functions(event, events))):
        return
    loaders = [loop.loaders[0] for loop in loops if len(loop.loaders) == 1]
    samplers = {one for loader in loaders for one in _samplers(loader)}
    why = Reason("the loop over the shares", *of)
    if samplers and not event.name.startswith(_ACCELERATOR):
        made_by = [one for one in events if one.kind == "sampler" and samplers & {*one.shown[0].refs}]
        if any(_drops(one) or _is_even(one) for one in made_by) or any(map(_asks_for_rest, events)):
            return
        way = "cut what is gathered to the length of the data, or leave them out by their numbers"
        if event.kind == "reduces":
            way = "leave them out: `range(rank, len(data), world_size)` are the samples of one process"
        text = (
            "the DistributedSampler fills up the shares with samples of the beginning, which count twice here"
        )
        text = f"{text}; {way}"
        yield made(event, "gathered", Status.NAMED, text, why)
    elif event.name.startswith(_ACCELERATOR) and any(loader.prepared for loader in loaders):
        named = any(one.kind == "gather" and one.loops and one.loops[-1].place == of for one in events)
        if not (named or any("even_batches" in one.module.text for one in events)):
            text = (
                f"`{event.name}` puts sums together over the samples that fill up the last batch, too, which count "
                "twice; sum up what accelerator.gather_for_metrics gives of each batch"
            )
            yield made(event, "gathered", Status.NAMED, text, why)


def gathered(event: Event) -> Iterator[Obligation]:
    """A gather of Accelerate's in an evaluation, which leaves out nothing of what fills up the last batch.

    Args:
        event: the gather.
    """
    if not event.loops or not event.loops[-1].shared or event.loops[-1].trains:
        return
    text = f"`{event.name}` counts the samples twice that fill up the last batch; use accelerator.gather_for_metrics"
    loaders = event.loops[-1].loaders
    if loaders and not any(one.prepared for one in loaders):
        text = f"`{event.name}` puts together what each process has of all batches of a loader, which is not prepared"
    yield made(event, "gathered", Status.NAMED, text)


def _number(event: Event, events: Sequence[Event]) -> int:
    return next(number for number, one in enumerate(events) if one is event)


def _origin(event: Event) -> tuple[str, int] | None:
    """Where the loop stands of whose rows something is gathered, or counted."""
    for value in event.shown if event.kind in ("gathers", "reduces") else ():
        place, why = array_of(value), why_of(value)
        if why is not None and event.kind == "reduces":
            if (adds := _counted(why)) is not None:
                return adds.path, adds.line
            continue
        origin = why.origin() if why is not None and place.rows and place.kind in _SHARES else None
        if origin is not None and origin.text.startswith(OF_BATCH):
            return origin.path, origin.line
    return None


def _counted(why: Reason) -> Reason | None:
    """What adds up, over the rounds of a loop, how many samples there are of something; None of any other value."""
    waiting, seen, counts = [why], set[int](), False
    adds: Reason | None = None
    while waiting and len(seen) < _MOST_STEPS:
        step = waiting.pop()
        if step.text.startswith("reduced by"):
            return None  # each round puts its own together
        adds = adds or (step if ADDED in step.text else None)
        counts |= step.text.endswith(COUNTS) or ".sum(" in step.text
        waiting += [one for one in step.parents if id(one) not in seen]
        seen |= {id(one) for one in step.parents}
    return adds if counts else None


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


def _is_even(event: Event) -> bool:
    """Whether the data of a sampler are tensors of a number of rows that two, four and eight processes share evenly."""
    data = event.node.args[:1] if isinstance(event.node, ast.Call) else []
    return bool(data) and _has_even_rows(data[0], event.module)


def _has_even_rows(data: ast.expr, module: ModuleRef, depth: int = 0) -> bool:
    if isinstance(data, ast.Constant):
        return isinstance(data.value, int) and data.value % _PROCESSES == 0
    made_of = data.args[:1] if isinstance(data, ast.Call) else bindings(data, module)
    return (
        bool(made_of)
        and depth < _MOST_MADE_OF
        and all(_has_even_rows(one, module, depth + 1) for one in made_of)
    )


def _asks_for_rest(event: Event) -> bool:
    """Whether a module asks whether the processes have equal shares: `len(data) % world_size != 0`."""
    return event.module.tree is not None and _has_rest(event.module.tree)


@lru_cache(maxsize=64)
def _has_rest(tree: ast.Module) -> bool:
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mod)
        and isinstance(part.left, ast.Call)
        and getattr(part.left.func, "id", "") == "len"
        for one in ast.walk(tree)
        if isinstance(one, ast.Assert | ast.If)
        for part in ast.walk(one.test)
    )


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
