"""Hazards of scripts that are written for several processes which only other places of the script show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

from accelify.domains.collectives import OF_MEANS
from accelify.domains.placement import Kind
from accelify.domains.reasons import Reason
from accelify.heap.accelerator import AGAIN
from accelify.heap.models import ALONE
from accelify.heap.paths import file_of
from accelify.heap.run import Event
from accelify.heap.values import Instance, ModuleRef
from accelify.obligations.averaged_ratios import averaged
from accelify.obligations.branches_by_rank import is_on_both_ways
from accelify.obligations.exclusive_branches import is_on_another_way
from accelify.obligations.loaded_weights import loaded_bare
from accelify.obligations.missing_steps import never_averaged
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.ordering import is_handle
from accelify.obligations.padded_shares import padded
from accelify.obligations.past_wrappers import in_no_model, is_without_gradients
from accelify.obligations.placed_parts import places
from accelify.obligations.polled_files import polled
from accelify.obligations.runs import is_of_one_process, of_its_run
from accelify.obligations.sinks import SHOWING, made, word_of

# Modes that empty a file as it is opened.
_EMPTYING = ("w", "x")
_WRITING = (*_EMPTYING, "a")
# What may take a sum over the processes down to their mean.
# How a reason says that a number is that of the batches of one process.
_OWN_BATCHES = "counts the batches of each process"
_SCALING = re.compile(r"[/*]|div|mul|mean|average|avg", re.IGNORECASE)
_MEAN = re.compile(r"^[\w.]*mean\(|\.mean\([^()]*\)$")
_MEETINGS = ("backward", "step", "collective")
# A script that steps by hand may ask for its gradients alone.
_TRAINING = frozenset({"backward", "step", "gradients"})
_WRITES = frozenset({"file.write", "file.append"})
_LAST_LINE = 1_000_000


def hazards_of(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What is wrong at one event, as others of the script show.

    Args:
        event: of a script that is written for several processes.
        events: all of the script.
    """
    if event.kind == "forward" and not event.detail:
        yield from _called_by_some(event, events)
    elif event.kind == "file.read" and event.detail.startswith(_EMPTYING):
        yield from _emptied(event, events)
    elif event.kind in SHOWING:
        yield from _copies(event, any(loop.whole is not None for other in events for loop in other.loops))
    elif event.kind == "loaded":
        yield from _loaded_by_some(event, events)
        yield from loaded_bare(event, events)
    elif event.kind == "device":
        yield from _on_first(event, events)
    elif event.kind == "sees one":
        yield from _sees_one(event, events)
    elif event.kind in ("gathers", "reduces"):
        yield from averaged(event, events)
        yield from padded(event, events)
    elif event.kind == "accumulate":
        yield from never_averaged(event, events)
    elif event.kind == "loose":
        yield from in_no_model(event, events)
    elif event.kind == "polls":
        yield from polled(event, events)


def _sees_one(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """GPUs that are seen, set to the same one for all processes, before each takes the one of its rank; where it is
    set under a condition, it may be for a run in one process."""
    later = events[next(n for n, other in enumerate(events) if other is event) + 1 :]
    together = {id(other) for other in of_its_run(event, events)}
    begins = next((one for one in later if id(one) in together and _takes_gpu(one)), None)
    if begins is not None and not any(guard.parts_ranks for guard in event.guards) and not _is_chosen(event):
        text = f"every process sees GPU {event.name} alone, and all but the first ask for another one"
        why = Reason(f"`{begins.name}`", begins.module.path, begins.line)
        yield made(event, "device", Status.NAMED, f"{text}; choose the GPUs as the script is launched", why)


def _takes_gpu(event: Event) -> bool:
    """Whether each process begins to use the GPU of its rank."""
    words = event.node.keywords if event.name == "Accelerator" and isinstance(event.node, ast.Call) else []
    on_cpu = any(one.arg == "cpu" for one in words)
    return (event.name == "Accelerator" and not on_cpu) or event.detail == "chosen"


def _is_chosen(event: Event) -> bool:
    """Whether it stands under a condition in its function, or in what the module does."""
    tree = event.module.tree
    return tree is not None and any(
        isinstance(one, ast.If) and "__name__" not in ast.unparse(one.test) and event.node in ast.walk(one)
        for one in ast.walk(tree)
    )


def _loaded_by_some(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What all processes train on with, loaded by some of them: but for weights that are put back where they were, and
    what the others get afterwards."""
    guard = next((one for one in event.guards if one.kind in ("main", "others", "one")), None)
    if guard is None or not goes_into_training(event, events):
        return
    number = next(n for n, other in enumerate(events) if other is event)
    before = {other.node for other in events[:number] if other.kind == "wrapped"}
    later = events[number + 1 :]
    sent = any(other.kind == "collective" and "broadcast" in other.name for other in later)
    sent = sent or any(other.kind == "wrapped" and other.node not in before for other in later)
    again = any(
        other.node is not event.node
        and other.kind == "loaded"
        and other.shown[0].refs == event.shown[0].refs
        and any(_place(one.why) == _place(guard.why) for one in other.guards)
        for other in events
    )
    if not (sent or again):
        who = "the main process" if guard.kind == "main" else "some processes"
        text = f"`{event.name}` is done by {who} alone, and the others train on with what they have"
        yield made(event, "same", Status.NAMED, f"{text}; let every process load", guard.why)


def _on_first(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What goes to a GPU before the process has one of its own, which an Accelerator gives it, or the script."""
    number = next((n for n, other in enumerate(events) if other is event), 0)
    entries = [n for n, other in enumerate(events) if other.kind == "entry"]
    first = max((n for n in entries if n < number), default=0)
    # What another function does that nobody calls is no part of its run.
    around = events[first : min((n for n in entries if n > number), default=None)]
    if event.detail.startswith("fixed"):
        # In the run of one process that a condition stands for, there is no other device.
        begins = {other.name for other in around} & {"Accelerator", "init_process_group"}
        alone = not begins or _is_chosen(event) or _is_of_main(event) or _is_named_again(event)
        replaced = _is_replaced(event, events) or is_of_one_process(event, around)
        if not ((alone and event.detail == "fixed") or replaced):
            yield made(event, "device", Status.NAMED, event.name)
        return
    if any(other.name == "Accelerator" for other in events):
        selects = next((other for other in around if other.name == "Accelerator"), None)
        if event.detail.startswith("early") and selects is not None:
            text = "comes before the Accelerator gives each process its device: all are on the first GPU"
            why = Reason("the Accelerator is made", selects.module.path, selects.line)
            yield made(event, "device", Status.NAMED, f"`{event.name}` {text}", why)
        return
    chosen = any(other.detail == "chosen" or _shows_gpus(other.module) for other in events)
    joins = next((other for other in around if other.name == "init_process_group"), None)
    if joins is not None and event.detail.endswith("known") and not (chosen or _is_of_main(event)):
        text = (
            "every process uses the first GPU here, as nothing chooses the one of its rank; call "
            "torch.cuda.set_device(local_rank) before"
        )
        why = Reason("the processes join", joins.module.path, joins.line)
        yield made(event, "device", Status.NAMED, text, why)


def _is_replaced(event: Event, events: Sequence[Event]) -> bool:
    """Whether an object has it from its class, and gets another one for it."""
    return any(
        isinstance(one, ast.Assign)
        and one.value is event.node
        and getattr(one.targets[0], "attr", "") == other.name
        for other in events
        if other.kind == "replaced" and not any(guard.parts_ranks for guard in other.guards)
        for ref in other.shown[0].refs
        for one in ast.walk(ref.cls.node if isinstance(ref, Instance) and ref.cls else ast.Pass())
    )


def _is_named_again(event: Event) -> bool:
    """Whether what is made there gets a name that another value gets under a condition below."""
    tree = event.module.tree
    assigned = [one for one in ast.walk(tree) if isinstance(one, ast.Assign)] if tree is not None else []
    names = {ast.unparse(one.targets[0]) for one in assigned if one.value is event.node}
    return any(
        isinstance(stmt, ast.Assign) and stmt.lineno > event.line and ast.unparse(stmt.targets[0]) in names
        for one in (ast.walk(tree) if tree is not None and names else ())
        if isinstance(one, ast.If)
        for stmt in one.body
    )


@lru_cache(maxsize=64)
def _shows_gpus(module: ModuleRef) -> bool:
    """Whether a module says which GPUs its process sees."""
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.ctx, ast.Store)
        and getattr(one.slice, "value", "") == "CUDA_VISIBLE_DEVICES"
        for one in (ast.walk(module.tree) if module.tree is not None else ())
    )


def are_without_training(event: Event, events: Sequence[Event]) -> bool:
    """Whether the ranks that do not come to an event do not come to the training either: it is named there, or they
    have left before.

    Args:
        event: what some ranks do.
        events: all of the script.
    """
    apart = {(one.why.path, one.why.line, one.left) for one in event.guards if one.parts_ranks}
    return any(
        (one.why.path, one.why.line, one.left) in apart
        for other in (events if apart else ())
        if other.kind in _TRAINING
        for one in other.guards
    )


def goes_into_training(event: Event, events: Sequence[Event]) -> bool:
    """Whether the processes train on with what one of them writes to a model or an optimizer.

    The wrapper around a model gives all of them the main process's weights as it is made, and its buffers in each
    forward.
    """
    wrapped = [{loop.number for loop in other.loops} for other in events if other.kind == "wrapped"]
    if event.detail == "buffer" or (event.detail == "untrained" and wrapped):
        return False
    # Where each round wraps its model, none trains on with that of the round before.
    anew = {loop.number for loop in event.loops if wrapped and all(loop.number in one for one in wrapped)}
    around = {loop.number for loop in event.loops} - anew
    training = [other for other in events if other.kind in _TRAINING]
    if any(around & {loop.number for loop in other.loops} for other in training):
        return True
    number = next((n for n, other in enumerate(events) if other is event), 0)
    # What another function did that nobody calls is no part of its run, and what was done before the processes join
    # again is of another call of the same function.
    begin = max((n for n, other in enumerate(events[:number]) if _begins_run(other)), default=0)
    wraps = [other for other in events[begin:number] if other.kind == "wrapped"]
    before = {other.node for other in wraps if not is_on_another_way(other, event)}
    later = events[number:]
    # Where the same call wraps again, it wraps another model.
    end = next((n for n, other in enumerate(later) if other.kind == "wrapped" and other.node in before), None)
    return bool(before) and any(other.kind in _TRAINING for other in later[:end])


def _begins_run(event: Event) -> bool:
    return event.kind == "entry" or (event.kind == "joins" and event.name == "init_process_group")


def _copies(event: Event, whole: bool) -> Iterator[Obligation]:
    """A sum over the processes of what all of them have alike: as each goes through all samples of a loader, where the
    script has a `whole` one, or as it is put together already; or of what is a mean of each one's data."""
    for place, why in [pair for value in event.shown for pair in places(value)]:
        if why is None:
            continue
        of_round = place.kind is Kind.WIDE and place.degree == 1
        if not of_round and (place.kind is not Kind.SAME or place.degree != -1):
            continue
        twice = next((step for step in why.steps() if step.text.endswith(AGAIN)), None)
        if twice is not None:
            text = "this is N times as much, as it is put together over the processes twice"
            one = made(event, "gathered", Status.NAMED, text, twice)
            yield replace(one, line=twice.line, column=1) if twice.path == one.path else one
        elif whole and why.origin().text.startswith("reduced by"):
            text = f"{word_of(event)}: N times as much, as all processes go through the same samples and are summed up"
            yield made(event, "gathered", Status.NAMED, text, why)
        elif (summed := _summed_mean(why, of_round)) is not None:
            text = (
                "this is N times as much, as it is summed up over the processes, and a mean of the data of each; "
                "divide it by the number of processes"
            )
            one = made(event, "gathered", Status.NAMED, text, summed)
            yield replace(one, line=summed.line, column=1) if summed.path == one.path else one
        elif not of_round and any(one.text.endswith(_OWN_BATCHES) for one in why.parents):
            text = (
                "this is N times as much, as it is of all processes, and divided by the number of batches of one; "
                "divide it by that of all"
            )
            yield made(event, "gathered", Status.NAMED, text, why)


def _summed_mean(why: Reason, of_round: bool) -> Reason | None:
    """Where a mean of each process's data, or of its round, is summed up over them, unless it is scaled by more than
    that: a number of which nothing is known may be that of the processes."""
    steps = why.steps()
    number = next((n for n, step in enumerate(steps) if step.text.startswith("reduced by")), len(steps))
    later, before = steps[:number], steps[number + 1 :]
    if of_round and not (before and steps[number].text.endswith(OF_MEANS)):
        return None
    # `torch.tensor(total / count)` divides as often as what it is made of.
    texts = list(dict.fromkeys(step.text.strip("`") for step in before))
    parts = [one for one in texts if not any(one in other for other in texts if other is not one)]
    mean = next((n for n, one in enumerate(parts) if _MEAN.search(one)), len(parts))
    divided = sum(one.count("/") for one in parts[:mean]) + sum(map(_by_number, parts[mean:]))
    scales = divided > int(not of_round)
    scales = scales or (of_round and any("*" in step.text for step in before))
    scaled = scales or any(_SCALING.search(step.text) for step in later)
    return steps[number] if before and not scaled else None


def _by_number(text: str) -> int:
    """How often an expression of what a mean is taken of divides by what may be the number of processes: by one that
    has a name, or that a function without arguments gives."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text.count("/")
    found = [
        one.right for one in ast.walk(tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)
    ]
    return sum(
        isinstance(one, ast.Name | ast.Attribute | ast.Subscript)
        or (isinstance(one, ast.Call) and not one.args)
        for one in found
    )


def _called_by_some(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A wrapped model, called where some ranks may come and others not: of random or own conditions in training alone.
    Where meetings stand under the same cause, they are what is named."""
    kinds = ("main", "others", *(("divergent",) if event.in_training else ()))
    guard = next((one for kind in kinds for one in event.guards if one.kind == kind), None)
    if guard is None or is_on_both_ways(event, events):
        return
    # With gradients a wrapper asks the others once, at the second call: which buckets they reduce.
    before = takewhile(lambda one: one is not event, events)
    trained = any(one.kind == "backward" and one.loops for one in before)
    alone = any(value.const == ALONE for value in event.shown)
    if alone and (trained or is_without_gradients(event, events)):
        return
    cause, met = _place(guard.why), ("backward",) if guard.kind != "divergent" else _MEETINGS
    if not any(cause in map(_place, _whys(other)) for other in events if other.kind in met):
        text = f"`{event.name}` is called on some processes: a wrapper around it may wait for the others"
        yield made(event, "all ranks", Status.NAMED, text, guard.why)


def _is_of_main(event: Event) -> bool:
    return any(one.kind in ("main", "first") for one in event.guards)


def _whys(event: Event) -> Iterator[Reason]:
    return (guard.why for guard in event.guards)


def _place(why: Reason) -> tuple[str, int]:
    last = why.chain()[-1]
    return last.path, last.line


def _emptied(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """A file that the main process alone writes to, and every process opens anew."""
    path = event.path
    if path is None or not path.place.is_uniform or not file_of(path) or _is_of_main(event):
        return
    opened = [
        other
        for other in events
        if other is not event
        and file_of(other.path) == file_of(path)
        and (other.kind in _WRITES or other.detail.startswith(_WRITING))
    ]
    # What is opened for each process's own writing is named where it is written to.
    written = list(_written_through(event, events))
    if (opened or written) and all(map(_is_of_main, [*opened, *written])):
        text = "every process opens this file anew: what the main process has written before is gone"
        text = f"{text}; open it on the main process alone"
        yield made(event, "once", Status.NAMED, text)


def _written_through(event: Event, events: Sequence[Event]) -> Iterator[Event]:
    """What is written through the name that an open file gets as it is opened: `log = open(path, "w")`."""
    bound = list(_bound(event.module.tree, event.node)) if event.module.tree is not None else []
    for other in events if bound else ():
        parts = list(ast.walk(other.node)) if other.module is event.module else []
        shown = any(isinstance(one, ast.keyword) and one.arg == "file" for one in parts)
        if (other.kind in _WRITES and is_handle(other)) or (other.kind == "terminal.write" and shown):
            used = {ast.unparse(one) for one in parts if isinstance(one, ast.Name | ast.Attribute)}
            if any(name in used and first <= other.line <= last for name, first, last in bound):
                yield other


def _bound(tree: ast.Module, node: ast.AST) -> Iterator[tuple[str, int, int]]:
    """What a call is bound to, by an assignment or by `with`, each with the lines in which it is that."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and one.value is node:
            yield from ((ast.unparse(target), one.lineno, _LAST_LINE) for target in one.targets)
        elif isinstance(one, ast.With | ast.AsyncWith):
            for item in one.items:
                if item.context_expr is node and item.optional_vars is not None:
                    yield ast.unparse(item.optional_vars), one.lineno, one.end_lineno or one.lineno
