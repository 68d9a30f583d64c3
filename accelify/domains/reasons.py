"""Why a value is what it is: a graph of operations, read as a chain of at most a few steps in a message."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from accelify.domains.placement import Placement
from accelify.domains.replacing import replace

# `an expression`, and nothing said of it.
_EXPRESSION = re.compile("`[^`]*`( as the round before left it)?")
# One more in each round, or the number that `enumerate` gives a round.
_COUNT = re.compile(
    r"`(?P<name>[\w.]+)( \+= 1| = (?P=name) \+ 1)?`( as the round before left it| adds up over `.*`)?"
    r"|counts the rounds of each process"
)
_MOST_STEPS = 5
_MOST_LOOKED_AT = 40
_LONGEST_WAY = 200


# Never changed once it is made, and not frozen: that would make it three times as dear.
@dataclass(slots=True, eq=False)
class Reason:
    """One operation that made a value what it is.

    `text` is a few words ("`total` adds up over the rounds of each process"), `line` its line in `path`, `parents` the
    reasons for the operands that matter. `by_data` says that the data choose an element there, or that a list is put
    together from all ranks: what becomes of it is more than the algebra follows. `cause` says that what is wrong begins
    there. `beside` is what else a text shows, each with its reason.
    """

    text: str
    path: str = ""
    line: int = 0
    parents: tuple[Reason, ...] = ()
    by_data: bool = False
    cause: bool = False
    beside: tuple[tuple[Placement, Reason | None], ...] = ()

    @property
    def goes_by_data(self) -> bool:
        """Whether the data choose an element on any way that leads here."""
        waiting, seen = [self], 0
        while waiting and seen < _MOST_LOOKED_AT:
            reason, seen = waiting.pop(), seen + 1
            if reason.by_data:
                return True
            waiting += reason.parents
        return False

    @property
    def counts_rounds(self) -> bool:
        """Whether it is a number of rounds, such as that of the steps, and nothing is made of it."""
        return all(map(_COUNT.fullmatch, (step.text for step in self.steps())))

    @property
    def says_why(self) -> bool:
        """Whether it is more than an expression of the script."""
        return self.cause or not _EXPRESSION.fullmatch(self.text)

    def steps(self) -> list[Reason]:
        """All steps from this operation back to where it comes from, without repeated lines: by the operands that are
        the furthest from the same. Where that way ends at a bare expression, it is the shortest one that does not."""
        way = self._way()
        return way if way[-1].says_why else _distinct(self._shortest(_ends) or way)

    def nearest(self) -> list[Reason]:
        """The next steps by the operands that are the furthest from the same; the last one is the cause where one is
        known."""
        way = self._way()
        last = [way[-1]] if way[-1].cause else way[_MOST_STEPS - 1 :][:1]
        return [*way[: _MOST_STEPS - 1], *last] if len(way) > _MOST_STEPS else way

    def by_count(self) -> Reason:
        """This with the way alone that leads to a number of rounds, where one does."""
        *way, last = self._shortest(lambda one: one.counts_rounds) or [self]
        return functools.reduce(lambda after, one: replace(one, parents=(after,)), reversed(way), last)

    def _way(self) -> list[Reason]:
        way = [self]
        while way[-1].parents and not way[-1].cause and len(way) < _LONGEST_WAY:
            way.append(way[-1].parents[0])
        return _distinct(way)

    def _shortest(self, ends: Callable[[Reason], bool]) -> list[Reason] | None:
        """The shortest way to an operation at which one ends."""
        ways, seen = [[self]], {id(self)}
        for way in ways:
            if ends(way[-1]):
                return way
            for parent in way[-1].parents:
                if id(parent) not in seen and len(seen) < _LONGEST_WAY:
                    seen.add(id(parent))
                    ways.append([*way, parent])
        return None

    def chain(self) -> list[Reason]:
        """The steps to read: the first ones, and where it comes from; five at most."""
        steps = self.steps()
        return [*steps[: _MOST_STEPS - 1], steps[-1]] if len(steps) > _MOST_STEPS else steps

    def origin(self) -> Reason:
        """The step that all of it begins with."""
        reason = self
        for _ in range(_MOST_LOOKED_AT):
            if not reason.parents:
                break
            reason = reason.parents[0]
        return reason

    def sentence(
        self, path: str = "", number: Callable[[str, int], int | str] = lambda path, line: line
    ) -> str:
        """The chain as one sentence; lines of files other than `path` name their file. `number` numbers lines."""
        return ": ".join(_step(step, path, number(step.path or path, step.line)) for step in self.chain())


def _distinct(way: list[Reason]) -> list[Reason]:
    """Steps without repeated lines."""
    found: dict[tuple[str, str, int], Reason] = {}
    for step in way:
        found.setdefault((step.text, step.path, step.line), step)
    return list(found.values())


def _ends(reason: Reason) -> bool:
    """Whether it says why, and has no operands that say more."""
    return reason.says_why and (reason.cause or not reason.parents)


def _step(step: Reason, path: str, line: int | str) -> str:
    if not step.line:
        return step.text
    where = f"{line}" if step.path == path or not step.path else f"{step.path}:{line}"
    return f"{step.text} ({where})"
