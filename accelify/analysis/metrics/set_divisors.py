"""Totals that are divided by numbers that stay what they were on one process.

print(total / int(count / batch_size))    the sum over all processes is what is divided, as the divisor counts all
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.metrics.averages import divisors
from accelify.analysis.metrics.counts import counts_own
from accelify.analysis.metrics.set_numbers import is_set
from accelify.analysis.metrics.undivided import is_shown
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, walk
from accelify.analysis.values import Entity


class SetDivisors:
    """Answers whether what a loop adds up is divided by numbers that stay what they were on one process.

    Args:
        script: its model.
        loop: over the batches.
        loaders: those that give each process a different share.
    """

    def __init__(
        self, script: ScriptModel, loop: ast.For | ast.AsyncFor | ast.While, loaders: set[Entity]
    ) -> None:
        self.script, self.tree, self.loop, self.loaders = script, script.tree, loop, loaders

    def divide(self, total: str, added: ast.expr | None) -> bool:
        """Whether such numbers, and none that counts the batches of one process, divide a total or what it adds up.

        Args:
            total: its name.
            added: what is added to it.
        """
        if not self._goes_through_loader:
            return False
        parts = [added.right] if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Div) else []
        by = list(divisors(self.script, self.loop, total))
        found = [self._kind(d) for d in [*parts, *by, *self._later(by)]]
        if not found or None in found:
            return False
        # A count of nothing does not scale a sum, and a function that gets it may divide it again.
        return any(found) or (not parts and not any(self._is_handed_on(d) for d in by))

    @cached_property
    def _goes_through_loader(self) -> bool:
        """Whether the loop takes every batch of a loader: one of a set number of rounds has as many on each process."""
        if not any(loop is self.loop for loop, _ in self.script.loader_loops):
            return False
        return not any(
            isinstance(n, ast.Break) and self.script.enclosing_loops(n)[:1] == [self.loop]
            for stmt in self.loop.body
            for n in walk(stmt)
        )

    def _kind(self, divisor: ast.expr) -> bool | None:
        if counts_own(self.script, self.loop, self.loaders, divisor) or names_in(divisor) & self._leading:
            return None
        return is_set(self.script, divisor)

    @cached_property
    def _leading(self) -> set[str]:
        """The names that drive the loop besides its loader: a number of its rounds, once that has been fixed."""
        names = [n for n in walk(getattr(self.loop, "iter", self.loop)) if isinstance(n, ast.Name)]
        return {n.id for n in names if not self.script.entities(n, v.LOADER)}

    def _later(self, by: list[ast.expr]) -> Iterator[ast.expr]:
        """What the quotients are divided by in turn: `total / 2 / len(loader)`, `mean = total / 2; mean / n`."""
        for divisor in by:
            parent = self.tree.parent(divisor)
            while isinstance(parent, ast.BinOp):
                outer = self.tree.parent(parent)
                if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Div) and outer.left is parent:
                    yield outer.right
                parent = outer
            if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
                name = dotted(parent.targets[0])
                yield from divisors(self.script, self.loop, name) if name is not None else ()

    def _is_handed_on(self, divisor: ast.expr) -> bool:
        """Whether a quotient is returned, or stored in an object or in a list."""
        stmt = self.tree.statement(divisor)
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            name = stmt.targets[0].id
            scope = self.script.scope_of(stmt).resolve(name)
            reads = self.script.reads(name, scope) if scope is not None else []
            return not all(is_shown(self.script, n) for n in reads if self.tree.is_after(n, stmt))
        quotient = self.tree.parent(divisor)
        return isinstance(quotient, ast.BinOp) and not is_shown(self.script, quotient)
