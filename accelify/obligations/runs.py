"""Which events of a module can be of one run: what nothing calls of it, another script may call alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache

from accelify.domains.reasons import Reason
from accelify.heap.run import Event, Loop

# Prepared models are written as the script's there, and ending the training leaves no process group.
_OWN_RUNTIME = "accelify.runtime"


def of_its_run(event: Event, events: Sequence[Event]) -> list[Event]:
    """The events but those of other functions that nothing calls, where one is of such a function itself.

    Args:
        event: one of them.
        events: all, in their order; what a function does that nothing calls comes after its entry.
    """
    within, own = list[int](), 0
    for number, other in enumerate(events, 1):
        begins = other.kind == "entry"
        within.append((number if other.detail else 0) if begins else within[-1] if within else 0)
        if other is event:
            own = within[-1]
    return [other for other, of in zip(events, within, strict=True) if not own or of in (0, own)]


def has_accelerator(event: Event, events: Sequence[Event]) -> bool:
    """Whether the run that an event is of makes an Accelerator."""
    made = any(other.name == "Accelerator" for other in events)
    return made and any(other.name == "Accelerator" for other in of_its_run(event, events))


def is_of_one_process(event: Event, events: Sequence[Event]) -> bool:
    """Whether an event is of a call that trains in one process, on the first device: the script gives the number 0 to
    a function that others can give the number of their process, and that joins them under a condition alone."""
    trees = {one.module.path: one.module.tree for one in events}
    for joins in [one for one in events if one.kind == "joins" and one.name == "init_process_group"]:
        path, line, chosen = joins.module.path, joins.line, False
        for call in joins.via:
            inner, outer = trees.get(path), trees.get(call[0])
            chosen = chosen or (inner is not None and _is_under_condition(inner, line))
            if chosen and call in event.via and outer is not None and _gives_zero(outer, call[1]):
                return True
            path, line = call
    return False


def _is_under_condition(tree: ast.Module, line: int) -> bool:
    """Whether a line of a function stands under a condition in it."""
    return any(
        isinstance(choice, ast.If) and choice.lineno <= line <= (choice.end_lineno or 0)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for choice in ast.walk(function)
    )


def _gives_zero(tree: ast.Module, line: int) -> bool:
    """Whether a call on a line has the number 0 as an argument."""
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.lineno == line]
    given = [value for one in calls for value in [*one.args, *(word.value for word in one.keywords)]]
    return any(isinstance(one, ast.Constant) and type(one.value) is int and one.value == 0 for one in given)


def is_within_step(event: Event, events: Sequence[Event]) -> bool:
    """Whether an event is a part of the step of an optimizer of the script's class, which the same processes take."""
    parting = [guard for guard in event.guards if guard.parts_ranks]
    return event.kind in ("step", "state.write") and any(
        other.kind == "step"
        and (other.module.path, other.line) in event.via
        and all(guard in other.guards for guard in parting)
        for other in events
    )


def whole_loop(event: Event) -> Loop | None:
    """The loop around an event in which each process goes through all of a loader; None where there is none, or one
    around it goes over the process's share, such as of files."""
    for loop in event.loops:
        if loop.whole is not None:
            return loop
        if loop.parted and not loop.shared:
            return None
    return None


def has_own_runtime(event: Event, events: Sequence[Event]) -> bool:
    """Whether accelify's runtime prepares the models, whose wrappers are written as what is in them."""
    trees = {one.module.tree for one in [event, *events]}
    return any(tree is not None and imports_own_runtime(tree) for tree in trees)


@lru_cache(maxsize=64)
def imports_own_runtime(tree: ast.Module) -> bool:
    """Whether a module imports accelify's runtime."""
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    names = {
        name
        for one in imports
        for name in ([one.module] if isinstance(one, ast.ImportFrom) else [alias.name for alias in one.names])
    }
    return any(f"{name}.".startswith(f"{_OWN_RUNTIME}.") for name in names)


def by_own_count(event: Event) -> Reason | None:
    """The condition that an event goes by where that is a count of the rounds of each process; not one that starts over
    there, which gradients are accumulated by, as by each so many rounds: `if seen == 4: ...; seen = 0`."""
    guard = next((guard for guard in event.guards if guard.kind == "counted"), None)
    return None if guard is None or _starts_over(event) else guard.why


def _starts_over(event: Event) -> bool:
    tree = event.module.tree
    around = [one for one in (ast.walk(tree) if tree is not None else ()) if isinstance(one, ast.If)]
    return any(
        not _zeroed(choice.body).isdisjoint(ast.unparse(one) for one in (test.left, *test.comparators))
        for choice in around
        for test in ast.walk(choice.test)
        if isinstance(test, ast.Compare) and any(one is event.node for one in ast.walk(choice))
    )


def _zeroed(body: Sequence[ast.stmt]) -> set[str]:
    """What statements set to zero: `seen = 0`, `seen, total = 0, 0.0`."""
    found = set[str]()
    for stmt in [one for one in body if isinstance(one, ast.Assign)]:
        for target in stmt.targets:
            pairs = [(target, stmt.value)]
            if isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
                pairs = list(zip(target.elts, stmt.value.elts, strict=False))
            found |= {ast.unparse(one) for one, value in pairs if getattr(value, "value", None) == 0}
    return found
