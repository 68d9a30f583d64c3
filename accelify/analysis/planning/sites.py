"""The prepare statements of a script, and the names that they prepare."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelify.analysis import values as v
from accelify.analysis.holders import Holder
from accelify.analysis.scopes import Scope
from accelify.analysis.values import Entity

KIND_ORDER = {v.MODEL: 0, v.OPTIMIZER: 1, v.LOADER: 2, v.SCHEDULER: 3}


@dataclass(eq=False)
class Item:
    """One name that is passed to prepare."""

    holder: Holder
    kind: str
    scope: Scope
    creations: list[ast.stmt]
    entities: set[Entity]
    # The container whose elements are prepared one by one: a list, a tuple or a dict. Else the name itself is.
    container: str | None = None

    def add(self, other: Item) -> None:
        """Merge in what another `Entity` of the same name is and where it is made."""
        self.entities |= other.entities
        self.creations += [stmt for stmt in other.creations if stmt not in self.creations]
        self.creations.sort(key=lambda stmt: (stmt.lineno, stmt.col_offset))


@dataclass(eq=False)
class PrepareSite:
    """One `a, b = accelerator.prepare(a, b)`, after a statement of a block."""

    scope: Scope
    after: ast.stmt
    items: list[Item] = field(default_factory=list)

    def names(self) -> list[str]:
        """What is prepared, in the usual order: models, optimizers, loaders, schedulers."""
        return list(dict.fromkeys(i.holder.text(self.scope) for i in self._ordered() if i.container is None))

    def containers(self) -> list[Item]:
        """The lists, tuples and dictionaries whose elements are prepared, models first."""
        found: dict[str, Item] = {}
        for item in self._ordered():
            if item.container is not None:
                found.setdefault(item.holder.text(self.scope), item)
        return list(found.values())

    def _ordered(self) -> list[Item]:
        return sorted(
            self.items, key=lambda i: (KIND_ORDER[i.kind], i.creations[0].lineno, i.creations[0].col_offset)
        )
