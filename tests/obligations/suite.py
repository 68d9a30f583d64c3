"""The goldens, and what the engine says of a script."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accelify.domains.reasons import Reason
from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate
from tests.obligations.asking import Mutator
from tests.obligations.mutations import mutants_of
from tests.obligations.scripts import Golden, Mutant, Script
from tests.test_fixtures import FIXTURES, KINDS, convert, replaces_ddp

Key = tuple[str, int, str, str]
TOTAL = [kind for kind in KINDS if not replaces_ddp(kind)]
NAMES = [
    *(f"{kind}/per-process" for kind in KINDS),
    *(f"{kind}/total" for kind in TOTAL),
    *(f"{path.parent.name}/accelerate" for path in sorted(FIXTURES.glob("*/after_accelerate.py"))),
    "project/per-process",
]


@functools.cache
def knowledge() -> Knowledge:
    """The shipped tables, read once."""
    return Knowledge()


@functools.cache
def golden(name: str) -> Golden:
    """A golden by its fixture and how it was converted: `FIXTURE/per-process`, `/total` or `/accelerate`."""
    kind, _, mode = name.partition("/")
    script = FIXTURES / kind / "before.py"
    if kind == "project":
        before, after = FIXTURES / "project" / "before", FIXTURES / "project" / "after"
        files = {before / path.name: path.read_text() for path in sorted(after.glob("*.py"))}
        return Golden(name, before / "train.py", files)
    if mode == "total":
        return Golden(name, script, {script: convert(kind, "total").new_text}, total=True)
    text = (FIXTURES / kind / ("after_accelerate.py" if mode == "accelerate" else "after.py")).read_text()
    return Golden(
        name, script, {script: text}, accelerate=mode == "accelerate", distributed=replaces_ddp(kind)
    )


def named(one: Golden) -> list[Obligation]:
    """What the engine names in a script."""
    return validate(one.files[one.script], one.script, knowledge(), one.read).of(Status.NAMED)


@functools.cache
def named_of_golden(name: str) -> frozenset[Key]:
    """What the engine names in a golden, by file, line, sink and demand."""
    return frozenset((o.path, o.line, o.sink, o.demand) for o in named(golden(name)))


@dataclass(frozen=True)
class Answer:
    """What the engine says of a mutant: what it names anew, and which of it is in the right place."""

    mutant: Mutant
    new: tuple[Obligation, ...]
    placed: tuple[Obligation, ...]

    def __str__(self) -> str:
        line = self.mutant.text.splitlines()[self.mutant.line - 1].strip()
        named = "; ".join(f"{one.line}: {one.message}" for one in self.new)
        return f"{self.mutant.file.parent.name}:{self.mutant.line} {self.mutant.kind}: {line} {named}"


def answer(name: str, mutant: Mutant) -> Answer:
    """Go through a mutant and compare with its golden."""
    whole = golden(name)
    changed = replace(whole, files={**whole.files, mutant.file: mutant.text})
    known = named_of_golden(name)
    new = [o for o in named(changed) if _key(o, mutant) not in known]
    right = changed.lines_with(mutant.names)
    right[mutant.file.name] |= mutant.changed
    placed = [o for o in new if _is_placed(o, right)]
    return Answer(mutant, tuple(new), tuple(placed))


@functools.cache
def mutants(name: str) -> tuple[Mutant, ...]:
    """The faults of a golden, without what is none."""
    return tuple(mutant for mutant in mutants_of(golden(name)) if not mutant.equivalent)


def answers(name: str) -> list[Answer]:
    """Those of all faults of a golden."""
    return [answer(name, mutant) for mutant in mutants(name)]


def _key(one: Obligation, mutant: Mutant) -> Key:
    line = mutant.golden_line(one.line) if one.path == mutant.file.name else one.line
    return one.path, line, one.sink, one.demand


def _is_placed(one: Obligation, right: Mapping[str, frozenset[int]]) -> bool:
    """Whether an obligation is in one of the right lines, or follows from what happens in one."""
    if one.line in right.get(one.path, ()):
        return True
    seen: set[Reason] = set()
    waiting = [one.reason] if one.reason is not None else []
    while waiting:
        reason = waiting.pop()
        if reason in seen:
            continue
        seen.add(reason)
        if reason.line in right.get(reason.path, ()):
            return True
        waiting.extend(reason.parents)
    return False


def applies(mutator: Mutator, one: Golden) -> bool:
    """Whether a mutator finds a place in a golden."""
    return any(mutant is not None for file in one.files for mutant in mutator(Script(one, file)))


def named_anew(fault: Any) -> list[Obligation]:
    """What the engine names in a golden in per-process mode with a fault of `benchmarks/mutations.py`."""
    name = f"{fault.fixture}/per-process"
    whole = golden(name)
    file = whole.script.with_name(fault.file) if fault.file else whole.script
    assert whole.files[file].count(fault.old) == 1
    changed = replace(whole, files={**whole.files, file: whole.files[file].replace(fault.old, fault.new)})
    known = {(o.path, o.sink, o.demand) for o in named(whole)}
    return [o for o in named(changed) if (o.path, o.sink, o.demand) not in known]
