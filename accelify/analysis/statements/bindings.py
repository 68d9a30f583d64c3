"""Which statements can have bound a name where it is read."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterator

from accelify.analysis.statements.always_bound import always_binds, leaves
from accelify.analysis.statements.tensor_tests import is_no_tensor, settles_tensor, tests_tensors
from accelify.analysis.syntax import Tree, statements_in, target_names

# A name is settled by what binds it, and by what never reaches its end.
_LEAVING_BY = (ast.If, ast.Try)


class Bindings:
    """Answers for the names of a script; answers are cached.

    Args:
        tree: of the script.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._tests = tests_tensors(tree)
        self._known: dict[ast.Name, list[ast.stmt | None]] = {}
        self._known_of_tensors: dict[ast.Name, list[ast.stmt | None]] = {}
        self._inside: dict[ast.stmt, dict[str, list[ast.stmt]]] = {}
        self._blocks: dict[int, _Block] = {}

    def of(self, node: ast.Name) -> list[ast.stmt | None]:
        """The statements that can have bound a name where it is read; None represents a parameter."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = list(self._of(node, always_binds))
        return found

    def of_tensors(self, node: ast.Name) -> list[ast.stmt | None]:
        """The same as far as the name holds a tensor there: `if isinstance(x, Tensor): ...` may settle that."""
        if not self._tests:
            return self.of(node)
        found = self._known_of_tensors.get(node)
        if found is None:
            contained = [] if is_no_tensor(self.tree, node) else list(self._of(node, settles_tensor))
            found = self._known_of_tensors[node] = contained
        return found

    def inside(self, stmt: ast.stmt, name: str) -> list[ast.stmt]:
        """The statements inside a statement that bind a name."""
        return self._all_inside(stmt).get(name, [])

    def _all_inside(self, stmt: ast.stmt) -> dict[str, list[ast.stmt]]:
        found = self._inside.get(stmt)
        if found is None:
            found = self._inside[stmt] = _bound_in(stmt)
        return found

    def _block(self, block: list[ast.stmt]) -> _Block:
        found = self._blocks.get(id(block))
        if found is None:
            found = self._blocks[id(block)] = _Block(block, self)
        return found

    def _of(self, node: ast.Name, settles: Callable[[ast.stmt, str], bool]) -> Iterator[ast.stmt | None]:
        name = node.id
        current: ast.stmt = self.tree.statement(node)
        while True:
            block = self.tree.block_of(current)[2]
            for stmt in self._block(block).before(current, name):
                yield from self._left_by(stmt, name)
                if settles(stmt, name):
                    return
            owner = self.tree.parent(current)
            while isinstance(owner, (ast.ExceptHandler, ast.match_case)):
                owner = self.tree.parent(owner)
            if isinstance(owner, (ast.For, ast.AsyncFor)) and name in target_names(owner.target):
                yield owner
                return
            if isinstance(owner, (ast.For, ast.AsyncFor, ast.While)):
                # What the previous round has left.
                for stmt in owner.body:
                    yield from self.inside(stmt, name)
            if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield None
                return
            if not isinstance(owner, ast.stmt) or isinstance(owner, ast.ClassDef):
                return
            current = owner

    def _left_by(self, stmt: ast.stmt, name: str) -> Iterator[ast.stmt]:
        """The statements inside a statement that bind a name last: of a branch not those that it binds over."""
        if not isinstance(stmt, ast.If):
            yield from self.inside(stmt, name)
            return
        for block in (stmt.body, stmt.orelse) if self.inside(stmt, name) else ():
            for inner in self._block(block).binding_last(name) if not leaves(block) else ():
                yield from self._left_by(inner, name)
                if always_binds(inner, name):
                    break


class _Block:
    """The statements of a block by the names that they bind."""

    def __init__(self, block: list[ast.stmt], bindings: Bindings) -> None:
        self.block = block
        self.places = {stmt: place for place, stmt in enumerate(block)}
        self.leaving = [place for place, stmt in enumerate(block) if isinstance(stmt, _LEAVING_BY)]
        self.binding: dict[str, list[int]] = {}
        for place, stmt in enumerate(block):
            for name in bindings._all_inside(stmt):
                self.binding.setdefault(name, []).append(place)

    def before(self, stmt: ast.stmt, name: str) -> list[ast.stmt]:
        """What may settle a name before a statement of the block, the nearest first."""
        places = self.binding.get(name, ())
        if self.leaving:
            places = sorted({*places, *self.leaving})
        return [self.block[place] for place in reversed(places[: bisect_left(places, self.places[stmt])])]

    def binding_last(self, name: str) -> Iterator[ast.stmt]:
        """The statements of the block that bind a name, from the end."""
        return (self.block[place] for place in reversed(self.binding.get(name, ())))


def _bound_in(stmt: ast.stmt) -> dict[str, list[ast.stmt]]:
    """The statements inside a statement that bind names, by name."""
    found: dict[str, list[ast.stmt]] = {}
    for node in statements_in(stmt):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.For, ast.AsyncFor)):
            targets = [node.target]
        else:
            continue
        for name in dict.fromkeys(n for t in targets for n in target_names(t)):
            found.setdefault(name, []).append(node)
    return found
