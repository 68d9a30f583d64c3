"""What differs between processes as it says which one it is of."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import takewhile

from accelify.domains.reasons import Reason
from accelify.heap.containers import KEYS
from accelify.heap.paths import TEMPORARY
from accelify.heap.random_draws import DRAWS, OTHER_SEED, SEEDED_APART, UNSEEDED
from accelify.heap.run import Event
from accelify.heap.transfers import NAMES_PROCESS, TIME
from accelify.heap.values import OF_BATCH, Container, Value
from accelify.obligations.placed_parts import places

# How a reason ends that says that something is taken by the rank.
SHARE = "is this rank's share"
RANK, _FLAGS = "the rank", {"only on the main process", "only on the main process of each machine"}
_NUMBERS = frozenset({RANK, "the number of processes"})
_LONGEST_WAY, _MOST_STEPS = 8, 100
# How a reason begins that says that some of many are drawn.
_SOME = re.compile(r"`[\w.]*\b(?:choices|permutation|randperm|sample|shuffle)\(")
# What differs by itself, and comes of no data: names that a process makes up, and what is true of it.
_MADE_UP = _NUMBERS - {RANK} | _FLAGS | {"only the main process", TEMPORARY, TIME}
_DIFFERS = "differs between ranks"
# How a reason begins that is of data, whichever rank has them, or of those of all.
_OF_DATA = (OF_BATCH, "gathered", "reduced by")


def shows_rank(event: Event, events: Sequence[Event]) -> bool:
    """Whether it says which process it is of: each process is meant to do it. No figure of data says whose they are."""
    for why in _reasons(event):
        before = list(takewhile(lambda step: not step.text.startswith(_OF_DATA), why.steps()))
        if says_who(why, events) or any(_names(step) and step in before for step in why.chain()):
            return True
    return False


def names_rank(event: Event) -> bool:
    """Whether the rank is in what is shown, in a key of it, or in its path."""
    return any(_names(step) for why in _reasons(event) for step in why.chain())


def fills_environment(event: Event) -> bool:
    """Whether a command's output goes into the environment, which each process has for itself."""
    tree = event.module.tree if event.kind == "process.run" else None
    written = [one for one in (ast.walk(tree) if tree is not None else ()) if isinstance(one, ast.Assign)]
    of = [one.targets[0] for one in written if any(part is event.node for part in ast.walk(one.value))]
    names = {target.id for target in of if isinstance(target, ast.Name)}
    return any(
        isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("environ")
        for one in written
        if one.targets[0] in of or names & {getattr(part, "id", "") for part in ast.walk(one.value)}
        for target in one.targets
    )


def _reasons(event: Event) -> list[Reason]:
    found = [event.path] if event.path is not None else []
    keys = [ref.fields.get(KEYS) for value in event.shown for ref in value.of(Container)]
    pairs = [pair for value in [*event.shown, *found, *filter(None, keys)] for pair in places(value)]
    return [why for _, why in pairs if why is not None]


def _names(step: Reason) -> bool:
    return step.text == RANK or step.text.endswith(NAMES_PROCESS)


def says_who(why: Reason, events: Sequence[Event]) -> bool:
    """Whether a value is the rank itself, or whether this is the main process."""
    if why.parents or why.text in {RANK} | _FLAGS:
        return not why.parents
    return any(
        (guard.why.text, guard.why.path) == (why.text, why.path)
        for event in events
        for guard in event.guards
        if guard.kind in ("main", "others")
    )


def is_by_rank(why: Reason) -> bool:
    """Whether a condition asks for the rank, and for no figure of what the ranks share out."""
    asks = any(step.text == RANK for step in why.chain())
    steps = why.steps()
    return asks and not any(step.text.endswith(SHARE) or step.text.startswith(OF_BATCH) for step in steps)


def is_alone(event: Event, value: Value, why: Reason) -> bool:
    """Whether it is the rank by itself that makes a value what it is, or what the process draws, of what goes to a
    file, such as pictures, or of some samples for a look: of a number that is shown, all are to have drawn the same
    one."""
    looks = event.kind == "file.write" or any(map(_SOME.match, (step.text for step in why.steps())))
    return _is_of_rank_alone(value, why) or (looks and _is_drawn_alone(why))


def _is_of_rank_alone(value: Value, why: Reason, steps: int = 0) -> bool:
    """Whether the rank, and how many there are, by itself makes a text or number what it is, as among all options or in
    a seed: it chooses no part of something, and is handed to nothing."""
    if steps and why.parents and _is_of_processes(why, steps):
        return True  # the others have the same
    if why.says_why or steps > _LONGEST_WAY or _chooses(why.text, value.type == "builtins.str"):
        return why.text in (*_NUMBERS, TIME)
    return bool(why.parents) and all(_is_of_rank_alone(value, one, steps + 1) for one in why.parents)


def _is_of_processes(why: Reason, steps: int = 0) -> bool:
    """Whether a number goes by how many processes there are alone."""
    if not why.parents or steps > _LONGEST_WAY:
        return why.text in _NUMBERS - {RANK}
    return all(_is_of_processes(one, steps + 1) for one in why.parents)


def _chooses(text: str, is_text: bool) -> bool:
    """Whether an expression chooses a part of something or, other than for a text, hands something on."""
    try:
        parts = list(ast.walk(ast.parse(text.strip("`"), mode="eval")))
    except SyntaxError:
        return "[" in text or (not is_text and "(" in text)
    return any(
        (isinstance(one, ast.Subscript) and not isinstance(one.slice, ast.Constant))
        or (isinstance(one, ast.Call) and not is_text)
        for one in parts
    )


def is_of_no_data(why: Reason) -> bool:
    """Whether nothing that a value comes from is of data: a name that each process makes up, how many there are."""
    waiting, seen = [why], {id(why)}
    while waiting and len(seen) < _MOST_STEPS:
        step = waiting.pop()
        if not (step.parents or step.text in _MADE_UP or step.text.endswith(_DIFFERS)):
            return False
        waiting += [one for one in step.parents if id(one) not in seen]
        seen |= {id(one) for one in step.parents}
    return not waiting


def _is_drawn_alone(why: Reason) -> bool:
    """Whether a value is the process's own by nothing but what it draws, such as noise: it is of no share of the
    data."""
    waiting, seen = [why], set[int]()
    while waiting and len(seen) < _MOST_STEPS:
        step = waiting.pop()
        if step.text.endswith((UNSEEDED, SEEDED_APART, OTHER_SEED)):
            continue
        if not step.parents or (step.says_why and not step.text.endswith(DRAWS)):
            return False
        waiting += [one for one in step.parents if id(one) not in seen]
        seen |= {id(one) for one in step.parents}
    return not waiting
