"""What parts of the budget of a run functions use up, and copies of libraries that lie in the project."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from accelify.heap.containers import array_of
from accelify.heap.run import Run
from accelify.heap.values import Function, Instance, Value

# After how many times that a function was gone through its calls are no longer distinguished by their places.
_MOST_CONTEXTS = 48
# What part of the budget one function may use that is gone through more often than that, and what part all functions of
# a library together of which the script's project has a copy.
_PARTS, _PARTS_OF_COPIES = 6, 2
# What part one model, or a call of such a copy, may use.
_PARTS_OF_MODELS = 3
# What part a function may use that only computes: after that its calls give something of their arguments.
_PARTS_OF_COMPUTING = 8
# Of a larger budget the rest is the script's.
_MOST_SHARED = 30_000


class Budgets:
    """What each function has used.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # How often each function was gone through.
        self._gone: dict[ast.AST, int] = {}
        self._spent: dict[ast.AST | str, int] = {}
        # Whether a function did nothing, when it was last gone through, that was not met before and that ranks do
        # together, and gave no object.
        self._only_compute: dict[ast.AST, bool] = {}
        self._met: set[tuple[str, ast.AST]] = set()
        # By the library: how many steps there had been when the outermost of its functions was begun.
        self._begun: dict[str, int] = {}
        # What was cut off before its end, and whether something is gone through that may be.
        self._cut: set[object] = set()
        self._limited = False

    @property
    def _shared(self) -> int:
        return min(self.run.budget, _MOST_SHARED)

    def is_called_often(self, function: Function) -> bool:
        """Whether one call stands for all others of a function."""
        return self._gone.get(function.node, 0) >= _MOST_CONTEXTS

    def copied(self, function: Function) -> str:
        """The library whose copy in the project a function is of, "" for any other one."""
        root = function.module.name.partition(".")[0]
        return root if self.run.checks and self.run.knowledge.knows(root) else ""

    def used_up(self, function: Function, copied: str, given: Sequence[Value]) -> str | None:
        """Why a function that all ranks do alike, outside shared loops, is not gone through; None where it is.

        Args:
            function: that is called.
            copied: the library that it is of.
            given: what it gets.
        """
        often = self.is_called_often(function) and self._spent.get(function.node, 0)
        is_dear = often > self._shared // _PARTS
        if not (is_dear or self._is_too_long(copied)):
            return None
        if self.run.in_shared_loop() or not all(array_of(value).is_same for value in given):
            return None
        return (
            f"`{function.name}` is called in too many ways"
            if is_dear
            else f"the copy of `{copied}` is too long"
        )

    def _is_too_long(self, copied: str) -> bool:
        """Whether the functions of a copy have used up what they may."""
        of_copy = self._spent.get(copied, 0)
        if copied in self._begun:
            of_copy += self.run.steps - self._begun[copied]
        return bool(copied) and of_copy > self._shared // _PARTS_OF_COPIES

    def only_computes(self, function: Function, copied: str) -> bool:
        """Whether a function took much of the budget, and last met nothing new with it, or is of a copy that
        is too long: what it gives is computed from its arguments."""
        dear = self._spent.get(function.node, 0) > self._shared // _PARTS_OF_COMPUTING
        last = dear and self._only_compute.get(function.node, False)
        return last or self._is_too_long(copied)

    @contextmanager
    def limited(self, key: object) -> Iterator[list[object]]:
        """Within, a part of the budget may be used, and nothing where that was too little before: enough is left for
        what comes after. What it gives holds the key afterwards where it was cut off.

        Args:
            key: what is gone through.
        """
        run, whole, cut = self.run, self.run.budget, list[object]()
        if self._limited or not run.checks:
            yield cut
            return
        self._limited = True
        run.budget = min(
            whole, run.steps + (0 if key in self._cut else min(whole, _MOST_SHARED) // _PARTS_OF_MODELS)
        )
        try:
            yield cut
        finally:
            if run.steps >= run.budget < whole:
                self._cut.add(key)
                cut.append(key)
            run.budget, self._limited = whole, False

    def spent_on(
        self,
        go: Callable[[Function, Sequence[Value], Mapping[str, Value], ast.AST], Value],
        function: Function,
        copied: str,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
    ) -> Value:
        """What a function gives that is gone through; nothing known where it was cut off.

        Args:
            go: goes through it.
            function: that is called.
            copied: the library that it is of.
            args, keywords: what it gets.
            node: the call.
        """
        self._gone[function.node] = self._gone.get(function.node, 0) + 1
        steps, met, sites = self.run.steps, len(self.run.events), len(self._met)
        outermost = bool(copied) and copied not in self._begun
        if outermost:
            self._begun[copied] = steps
        try:
            with self.limited(copied) if outermost else nullcontext(list[object]()) as cut:
                result = go(function, args, keywords, node)
        finally:
            for key in (function.node, *([copied] if outermost else [])):
                self._spent[key] = self._spent.get(key, 0) + self.run.steps - steps
            if outermost:
                del self._begun[copied]
        if self.run.checks:
            events = self.run.events[met:]
            self._met.update((event.kind, event.node) for event in events)
            alone = all("." in event.kind or event.kind == "raise" for event in events)
            plain = alone and len(self._met) == sites and not result.of(Instance)
            self._only_compute[function.node] = plain
        return Value() if cut else result
