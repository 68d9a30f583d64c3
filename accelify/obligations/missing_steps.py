"""What a script leaves out, as all its events show: letting go of models, accumulating, averaging gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accelify.heap.run import Event
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.past_wrappers import is_averaged_by_hand
from accelify.obligations.runs import of_its_run
from accelify.obligations.sinks import made

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def never_let_go(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """Models that each round of a loop prepares anew, and nothing in that loop lets go of."""
    if event.kind != "prepare":
        return
    in_list = sum(
        len(one.generators)
        for one in ast.walk(event.module.tree or ast.Module([], []))
        if isinstance(one, _COMPREHENSIONS) and event.node in ast.walk(one)
    )
    if in_list >= len(event.loops):
        return  # all that the rounds prepare are in one list
    if _is_of_one_round(event, event.loops[-1 - in_list].place, events):
        return
    around = event.loops[-1 - in_list].number
    # An Accelerator that the round makes goes with it.
    released = any(
        (
            other.name == "accelerator.free_memory"
            or (other.kind == "accelerator" and other.name == "Accelerator")
        )
        and around in {loop.number for loop in other.loops}
        for other in events
    )
    if not released:
        text = "each round of the loop prepares a model anew, and the Accelerator keeps those of all rounds alive"
        yield made(event, "let go", Status.NAMED, text)


def _is_of_one_round(event: Event, place: tuple[str, int], events: Sequence[Event]) -> bool:
    """Whether a loop goes through functions and calls each, of which one prepares: `getattr(self, step)()`."""
    trees = {one.module.path: one.module.tree for one in events if one.module.path == place[0]}
    return any(
        isinstance(loop, ast.For)
        and loop.lineno == place[1]
        and isinstance(call, ast.Call)
        and _names(call.func) & _names(loop.target)
        and (place[0], call.lineno) in event.via
        for tree in trees.values()
        for loop in (ast.walk(tree) if tree is not None else ())
        for call in (ast.walk(loop) if isinstance(loop, ast.For) else ())
    )


def _names(called: ast.AST) -> set[str]:
    """What a function is called by: a name, or that of a method that `getattr` looks up."""
    if isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "getattr":
        called = called.args[1] if len(called.args) > 1 else called
    return {called.id} if isinstance(called, ast.Name) else set()


def never_accumulated(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """An Accelerator that is to accumulate gradients, and never does."""
    if event.kind != "accumulates" or any(other.kind == "accumulate" for other in events):
        return
    steps = [other for other in of_its_run(event, events) if other.kind == "step"]
    if any(not _is_each_so_many(step) for step in steps):
        text = "gradients are to be accumulated, and no batch stands under `accumulate`: each one steps"
        yield made(event, "accumulated", Status.NAMED, text)


def _is_each_so_many(event: Event) -> bool:
    """Whether the script steps by itself where so many batches have gone by: `if number % steps == 0:`."""
    return any(
        isinstance(one, ast.If)
        and any(isinstance(part, ast.Mod) for part in ast.walk(one.test))
        and event.node in {part for stmt in one.body for part in ast.walk(stmt)}
        for one in (ast.walk(event.module.tree) if event.module.tree is not None else ())
    )


def never_averaged(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """Gradients that stay each process's: every backward of the run stands under one `no_sync`, whatever its round."""
    if event.kind != "accumulate" or not event.name.endswith("no_sync"):
        return
    block = _under(event)
    together = of_its_run(event, events)
    backward = [other for other in together if other.kind == "backward"]
    if (
        block is None
        or not backward
        or any(other.kind == "accumulate" and other.node is not event.node for other in together)
    ):
        return
    if all(_is_within(other, event, block) for other in backward) and not any(
        is_averaged_by_hand(other, events)
        for other in [*backward, *(o for o in together if o.kind == "step")]
    ):
        text = (
            f"every backward stands under `{event.name}`: the gradients are never averaged over the processes; leave "
            "out the one before each step"
        )
        yield made(event, "prepared", Status.NAMED, text)


def of_gradients(one: Obligation, events: Sequence[Event]) -> Obligation:
    """A write to what is trained, where it is made of gradients that the script asks for by itself.

    Args:
        one: what was found of the write.
        events: all of the script.
    """
    steps = {(step.path, step.line) for step in one.reason.steps()} if one.reason is not None else set()
    asked = (other for other in events if other.kind == "gradients")
    if all((other.module.path, other.line) not in steps for other in asked):
        return one
    text = one.found.partition("`")[2].partition("`")[0]
    found = f"`{text}` gets gradients of `torch.autograd.grad`, which no wrapper averages over the processes"
    return replace(one, found=f"{found}; average them first (all_reduce, reduce), or call backward")


def _under(event: Event) -> ast.With | ast.AsyncWith | None:
    """The block that an event is the context of, in every round of the loop around it or in none."""
    tree = event.module.tree or ast.Module([], [])
    around = [one for one in ast.walk(tree) if event.node in set(ast.walk(one))]
    block = next((one for one in around if isinstance(one, ast.With | ast.AsyncWith)), None)
    block = (
        block if block is not None and not any(event.node in set(ast.walk(s)) for s in block.body) else None
    )
    loops = [one for one in around if isinstance(one, _LOOPS)]
    if block is None or not loops:
        return None
    inner = set(ast.walk(loops[-1]))
    elsewhere = {
        part
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name != "__init__"
        for part in ast.walk(one)
    }
    changed = {
        ast.unparse(one)
        for one in inner | elsewhere
        if isinstance(getattr(one, "ctx", None), ast.Store)
        and (isinstance(one, ast.Attribute) or (isinstance(one, ast.Name) and one in inner))
    }
    tests = [one.test for one in around if isinstance(one, ast.If | ast.IfExp) and one in inner]
    parts = [part for test in tests for part in ast.walk(test)]
    asked = {ast.unparse(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)}
    return None if changed & asked or any(isinstance(part, ast.Call) for part in parts) else block


def _is_within(other: Event, event: Event, block: ast.With | ast.AsyncWith) -> bool:
    """Whether one event stands in a block of the module of another, or in what is called there."""
    last = block.end_lineno or block.lineno
    places = [(other.module.path, other.line), *other.via]
    return any(path == event.module.path and block.lineno <= line <= last for path, line in places)
