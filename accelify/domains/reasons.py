"""Why a value is what it is: a graph of operations, read as a chain of at most a few steps in a message."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_STEPS = 5
_MOST_LOOKED_AT = 40


@dataclass(frozen=True, slots=True, eq=False)
class Reason:
    """One operation that made a value what it is.

    `text` is a few words ("`total` adds up over the rounds of each process"), `line` its line in `path`, `parents` the
    reasons for the operands that matter. `by_data` says that the data choose an element there, or that a list is put
    together from all ranks: what becomes of it is more than the algebra follows. `cause` says that what is wrong begins
    there.
    """

    text: str
    path: str = ""
    line: int = 0
    parents: tuple[Reason, ...] = ()
    by_data: bool = False
    cause: bool = False

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

    def way(self) -> list[Reason]:
        """The steps from this operation back to where it comes from, without repeated lines, as far as a cause."""
        steps: list[Reason] = []
        seen: set[tuple[str, str, int]] = set()
        reason: Reason | None = self
        for _ in range(_MOST_LOOKED_AT):
            if reason is None or (steps and steps[-1].cause):
                break
            step = (reason.text, reason.path, reason.line)
            if step not in seen:
                seen.add(step)
                steps.append(reason)
            reason = reason.parents[0] if reason.parents else None
        return steps

    def chain(self) -> list[Reason]:
        """At most five of these steps; the last is the cause where one is known."""
        steps = self.way()
        last = next((step for step in steps if step.cause), None)
        return [*steps[: _MOST_STEPS - 1], last] if last and len(steps) > _MOST_STEPS else steps[:_MOST_STEPS]

    def origin(self) -> Reason:
        """The step that all of it begins with."""
        reason = self
        for _ in range(_MOST_LOOKED_AT):
            if not reason.parents:
                break
            reason = reason.parents[0]
        return reason

    def sentence(self, path: str = "") -> str:
        """The chain as one sentence; lines of files other than `path` name their file."""
        return ": ".join(_step(step, path) for step in self.chain())


def _step(step: Reason, path: str) -> str:
    if not step.line:
        return step.text
    where = f"{step.line}" if step.path == path or not step.path else f"{step.path}:{step.line}"
    return f"{step.text} ({where})"
