"""Which parts of a script come before which others: a question about nodes, so that callers need no positions."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any


class Ordered(ABC):
    """The order in which the nodes of a tree are written, over all files that are read as one."""

    @abstractmethod
    def start(self, node: Any) -> int:
        """Where a node begins."""

    @abstractmethod
    def end(self, node: Any) -> int:
        """Where a node ends."""

    @abstractmethod
    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node."""

    @abstractmethod
    def locate(self, offset: int) -> tuple[str, int, int]:
        """Path, line and column of a place."""

    def is_before(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether one node begins before another one does."""
        return self.start(one) < self.start(other)

    def is_after(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether one node begins when another one has ended."""
        return self.start(one) >= self.end(other)

    def in_order(self, found: Iterable[Any], node: Callable[[Any], Any] | None = None) -> list[Any]:
        """Nodes, or what has a `node`, in the order in which they begin."""
        return sorted(found, key=self.start if node is None else lambda one: self.start(node(one)))

    def first(self, nodes: Iterable[Any]) -> Any:
        """The node that begins first, None of none."""
        return min(nodes, key=self.start, default=None)

    def last(self, nodes: Iterable[Any]) -> Any:
        """The node that begins last, None of none."""
        return max(nodes, key=self.start, default=None)

    def inner_first(self, nodes: Iterable[Any]) -> list[Any]:
        """Nodes statement by statement, in one what ends first, and what is inside before what is around it."""
        return sorted(nodes, key=lambda n: (self.start(self.statement(n)), self.end(n), -self.start(n)))

    def place(self, node: Any) -> tuple[str, int, int]:
        """Path, line and column at which a node begins."""
        return self.locate(self.start(node))

    def end_place(self, node: Any) -> tuple[str, int, int]:
        """Path, line and column after a node."""
        return self.locate(self.end(node))
