"""Calls that are being gone through."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from accelify.domains.reasons import Reason
from accelify.heap.early_exits import Way
from accelify.heap.flags import FLAGS
from accelify.heap.joining import join
from accelify.heap.memory import Known
from accelify.heap.run import Loop
from accelify.heap.values import NONE, Guard, Iterable, Value

_PLAIN = (ast.Return, ast.Break, ast.Continue, ast.Pass, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
_OF_STATEMENTS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match)
# What makes a statement cost more to be gone through than to be remembered.
_DEAR = (ast.Call, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Early:
    """A way that returns before the rest of a call, where a condition that is the same on all ranks says so: which of
    the events, the values and the writes are of it, and whom to tell that several processes do not go it."""

    events: slice
    returned: slice
    left: int
    decided: Callable[[], None]


class Frame:
    """One call that is being gone through: what it returns and yields, and the writes on the ways that leave early."""

    def __init__(self, guards: int, rounds: int) -> None:
        self.guards = guards
        # In how many loops it was begun.
        self.rounds = rounds
        # What the statements in its loops did that were gone through.
        self.known: Known = {}
        self.returned: list[tuple[Value, Guard | None]] = []
        self.yielded: Value | None = None
        self.yielded_shared = False
        # Why each rank goes through all batches of a loader, where it yields them.
        self.yielded_whole: Reason | None = None
        # By where the ranks part: why some of them alone come to a `yield`.
        self.uneven: dict[tuple[str, int], dict[ast.AST, Reason]] = {}
        # Whether the main process reaches a `yield` before the others.
        self.first = False
        self.left: list[Way] = []
        self.early: list[Early] = []

    def result(self, falls_through: bool, checks: bool) -> Value:
        """What the call gives; `falls_through` says that a way leads to the end of the function."""
        found: Value | None = None
        given = self._by_rank() if checks else self.returned
        divergent = next((guard for _, guard in given if guard is not None), None)
        returned = [value for value, _ in given]
        in_order = len(returned) == 2 and given[0][1] is divergent
        if falls_through and returned and divergent is not None:
            returned.append(NONE)
        for value in returned:
            found = value if found is None else join(found, value, divergent, in_order=in_order)
        return found or NONE

    def note_rounds(self, around: Sequence[Iterable | Loop | None]) -> None:
        """Note what a value is given one after the other of, or in which loops."""
        for one in around:
            if one is not None:
                self.yielded_shared = self.yielded_shared or one.shared
                self.yielded_whole = self.yielded_whole or one.whole

    def rounds_given(self) -> Iterable:
        """What a loop over the generator goes over that the call makes."""
        given = Iterable(self.yielded or NONE, self.yielded_shared)
        # Where there are two, the others may come to the other one.
        alone = (next(iter(one.values())) for one in self.uneven.values() if len(one) == 1)
        given.uneven = next(alone, None)
        given.whole = None if self.uneven else self.yielded_whole
        return given

    def _by_rank(self) -> list[tuple[Value, Guard | None]]:
        """What it gives without what a setting has it say to all, beside which of the ranks one is, as `or` takes it:
        `if not distributed: return True`."""
        answers = [
            (value, guard) for value, guard in self.returned if guard is not None or value.type in FLAGS
        ]
        settled = all(isinstance(one.const, bool) or one.type in FLAGS for one, _ in self.returned)
        by_rank = all(guard is None or guard.kind in ("main", "others") for _, guard in answers)
        return answers if answers and settled and by_rank else self.returned


@lru_cache(maxsize=10_000)
def is_dear(stmt: ast.stmt) -> bool:
    """Whether it costs more to go through a statement than to remember it."""
    return not isinstance(stmt, _PLAIN) and (
        isinstance(stmt, _OF_STATEMENTS)
        or isinstance(getattr(stmt, "value", None), _DEAR)
        or any(isinstance(part, _DEAR) for part in ast.walk(stmt))
    )
