"""What the statements of a program read of what is known, so that only those are run again for which it changed.

Everything that the interpreter learns goes into sets, lists and dictionaries that only grow. So what was read has
changed where, and only where, one of these is longer than it was.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Set, Sized

from accelify.analysis.values import Entity, Mapping, Sequence, Value

# What was read, and how long it was then.
Reads = tuple[list[Sized], list[int]]


class ReadsOfNodes:
    """What each node read when it was run last, with its lengths then."""

    def __init__(self) -> None:
        self._of: dict[ast.AST, tuple[list[Sized], list[int]]] = {}
        self._now: list[Sized] = []
        self._lengths: list[int] = []
        # What was looked for and is not there; something is put into its list when it comes.
        self._missing: dict[Hashable, list[bool]] = {}
        # What is not in anything that grows (the kinds of entities, the bases of classes) makes everything run again.
        self._since = 0
        self._valid: dict[ast.AST, int] = {}
        self._begun = 0

    def begin(self) -> None:
        """A node is about to be run."""
        self._now, self._lengths = [], []
        self._begun = self._since

    def end(self, node: ast.AST) -> None:
        """The node has been run. What it added to a value after reading it has changed for this node, too."""
        self._of[node] = self._now, self._lengths
        self._valid[node] = self._begun

    def holds(self, node: ast.AST) -> bool:
        """Whether all is as it was when the node was run last."""
        if self._valid.get(node) != self._since:
            return False
        contained, lengths = self._of[node]
        return list(map(len, contained)) == lengths

    def nothing_holds(self) -> None:
        """Something changed of which nobody knows who reads it."""
        self._since += 1

    def changed_in_place(self, entities: Set[Entity]) -> None:
        """Some entities are of another kind: what reads a set with one of them, or a method of one, is run again."""
        holding: dict[int, bool] = {}
        for node, (contained, _) in self._of.items():
            for one in contained:
                if type(one) is set:
                    found = holding.get(id(one))
                    if found is None:
                        found = holding[id(one)] = any(
                            value in entities or getattr(value, "receiver", None) in entities for value in one
                        )
                    if found:
                        self._valid.pop(node, None)
                        break

    def note(self, contained: Sized) -> None:
        """The node reads a set, list or dictionary."""
        self._now.append(contained)
        self._lengths.append(len(contained))

    def all_of(self, contained: dict[str, set[Value]]) -> None:
        """It reads a dictionary and the sets in it."""
        self.note(contained)
        for values in contained.values():
            self.note(values)

    def container(self, value: Value) -> None:
        """It reads what a list or dictionary of the program holds; nothing where the value is none."""
        if isinstance(value, Sequence):
            self.note(value.rest)
            self.note(value.elements)
            for element in value.elements:
                self.note(element)
        elif isinstance(value, Mapping):
            self.note(value.rest)
            self.note(value.entries)
            for entry in value.entries.values():
                self.note(entry)

    def relation(self, entity: Entity, name: str) -> None:
        """The node reads what a relation of an `Entity` leads to."""
        self.note(entity.links)
        contained = entity.links.get(name)
        if contained is not None:
            self.note(contained)

    def missing(self, key: Hashable) -> None:
        """It reads something that is not there yet."""
        self.note(self._missing.setdefault(key, []))

    def made(self, key: Hashable) -> None:
        """What may have been looked for is there now."""
        if key in self._missing:
            self._missing[key].append(True)

    def count(self) -> int:
        """How much the node has read so far."""
        return len(self._now)

    def since(self, count: int) -> Reads:
        """What it has read since then, each once: a call in a chain reads again what those before it read."""
        pairs = zip(self._now[count:], self._lengths[count:], strict=True)
        once = {(id(one), length): (one, length) for one, length in pairs}
        return [one for one, _ in once.values()], [length for _, length in once.values()]

    def again(self, reads: Reads) -> None:
        """The node reads again what was read for a cached value."""
        self._now += reads[0]
        self._lengths += reads[1]


class NoReads(ReadsOfNodes):
    """Records nothing: for questions after everything has been run."""

    def note(self, contained: Sized) -> None:
        """Forget what is read."""

    def missing(self, key: Hashable) -> None:
        """Forget what is looked for."""
