"""Expressions, arguments and parameters as they become: one copy of the paths from what changes up to a statement."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import libcst as cst

from accelify.analysis.syntax import Tree, children
from accelify.writer import arguments, places, templates
from accelify.writer.aligned import aligned
from accelify.writer.edits import AddArgument, AddParameter, DropArgument, Edit, Replace, node_of
from accelify.writer.errors import EditError
from accelify.writer.quotes import requoted
from accelify.writer.templates import fitting, in_parens

_IN_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_INSIDE = (AddArgument, AddParameter, DropArgument)
_BRACKETS = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Expressions(ABC):
    """The expressions of one tree being changed."""

    def __init__(self, tree: Tree, edits: list[Edit]) -> None:
        self.tree, self.edits = tree, edits
        self.known: dict[ast.AST, Any] = {}
        self.made: dict[ast.AST, Any] = {}
        self.done: set[int] = set()
        self.touched: set[ast.AST] = set()
        self.rewrites: defaultdict[ast.AST, list[Replace]] = defaultdict(list)
        self.inside: defaultdict[ast.AST, list[Any]] = defaultdict(list)
        self.touch(map(node_of, self.edits))
        for edit in self.edits:
            if isinstance(edit, Replace):
                self.rewrites[edit.node].append(edit)
            elif isinstance(edit, _INSIDE):
                self.inside[node_of(edit)].append(edit)
        for node, rewrites in self.rewrites.items():
            self._settle(node, rewrites)

    @abstractmethod
    def read_block(self, owner: ast.AST, stmt: ast.AST) -> None:
        """Find what represents the statements (or handlers, or cases) that an owner has in the list of one of them."""

    @abstractmethod
    def with_blocks(self, node: ast.AST, base: Any) -> Any:
        """A statement, a handler or a case with its blocks as they become."""

    def touch(self, nodes: Iterable[ast.AST]) -> None:
        """Have nodes written again, with those around them."""
        for node in nodes:
            current: ast.AST | None = node
            while current is not None and current not in self.touched:
                self.touched.add(current)
                current = self.tree.parent(current)

    # -- what represents a node

    def original(self, node: ast.AST) -> Any:
        """What represents a node before it is changed."""
        found = self.known.get(node)
        if found is None:
            parent = self.tree.parent(node)
            assert parent is not None
            if isinstance(node, _IN_BLOCKS):
                self.read_block(parent, node)
                found = self.known[node]
            else:
                around = self.original(parent)
                found = self.known[node] = places.follow(around, places.steps_to(parent, node, around))
        return found

    def resolved(self, node: ast.AST) -> Any:
        """What represents an expression, or a part of a statement, once it is changed."""
        if node not in self.touched:
            return self.original(node)
        if node not in self.made:
            self.made[node] = self._resolved(node)
        return self.made[node]

    def _resolved(self, node: ast.AST) -> Any:
        rewrites, base = self.rewrites.get(node, []), self.original(node)
        whole = next((edit for edit in rewrites if not edit.is_around), None)
        if isinstance(node, ast.keyword) and whole is not None:
            self.done.add(id(whole))
            made = templates.argument(whole.pieces, partial(self.part, node, None))
            return made.with_changes(comma=base.comma, whitespace_after_arg=base.whitespace_after_arg)
        if rewrites and not isinstance(base, cst.BaseExpression):
            raise EditError(f"what stands in line {self.line(node)} cannot be replaced")
        now: Any = self._written(node, whole, None) if whole is not None else self.changed_inside(node)
        if isinstance(node, ast.Call) and whole is None and node.func in self.touched:
            now = self._aligned(node, base, now)
        items = self.inside.get(node, ())
        if whole is not None and isinstance(now, cst.Call) and all(isinstance(e, AddArgument) for e in items):
            now = self._with_items(node, now, items)
        if self.tree.in_fstring(node) and (rewrites or items):
            now = requoted(now, self.quotes_around(node))
        if not rewrites:
            return now
        # What is in parentheses stays in them, but for those that make a tuple or a generator.
        inner = 1 if isinstance(node, (ast.Tuple, ast.GeneratorExp)) and base.lpar else 0
        outer = len(base.lpar) - inner
        left, right = base.lpar[:outer], base.rpar[inner:]
        if whole is None:
            now = now.with_changes(lpar=now.lpar[outer:], rpar=now.rpar[:inner])
        for edit in sorted((e for e in rewrites if e.is_around), key=lambda e: -e.order):
            new = self._written(node, edit, now)
            if left and templates.is_atom(new):
                # `(a + b)` becomes `(a + b).cpu()`, and no more than that.
                new = self._written(node, edit, _within(left, now, right))
                left = []
            now = requoted(new, self.quotes_around(node)) if self.tree.in_fstring(node) else new
        if not left and not now.lpar and self._breaks(node, now):
            return in_parens(now)
        return _within(left, now, right) if left else now

    def _aligned(self, node: ast.Call, base: Any, now: Any) -> Any:
        given: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        first = min(given, key=lambda one: (one.lineno, one.col_offset), default=None)
        if first is None or node.end_lineno == node.lineno or first.lineno != node.func.end_lineno:
            return now
        stmt = next(around for around in self.tree.ancestors(node) if isinstance(around, ast.stmt))
        return aligned(now, base.func, first.col_offset, len(self.tree.indent(stmt)))

    def _written(self, node: ast.AST, edit: Replace, inner: cst.BaseExpression | None) -> cst.BaseExpression:
        self.done.add(id(edit))
        return templates.expression(edit.pieces, partial(self.part, node, inner))

    def part(self, node: ast.AST, inner: cst.BaseExpression | None, piece: ast.AST) -> cst.BaseExpression:
        """What a node among the pieces that come in the place of `node` is; of that itself `inner` is left."""
        if piece is node and inner is not None:
            return inner
        if not self.tree.is_within(piece, {node}):
            return templates.parsed(self.tree.segment(piece))
        found = self.resolved(piece)
        assert isinstance(found, cst.BaseExpression)
        return found

    def _breaks(self, node: ast.AST, now: cst.BaseExpression) -> bool:
        """Whether an expression goes on in another line where nothing says that it does."""
        code = cst.Module([]).code_for_node(now)
        if "\n" not in code or isinstance(now, (cst.SimpleString, cst.FormattedString)):
            return False
        below: ast.AST = node
        for around in self.tree.ancestors(node):
            if isinstance(around, ast.stmt):
                break
            if isinstance(around, _BRACKETS) or (isinstance(around, ast.Call) and below is not around.func):
                return False
            if isinstance(around, ast.Subscript) and below is around.slice:
                return False
            if getattr(self.original(around), "lpar", ()):
                return False
            below = around
        try:
            compile(code, "<expression>", "eval", ast.PyCF_ONLY_AST)
        except SyntaxError:
            return True
        return False

    def changed_inside(self, node: ast.AST, base: Any = None) -> Any:
        """What represents a node with what changes below it."""
        base = self.original(node) if base is None else base
        for child in children(node):
            if child not in self.touched or isinstance(child, _IN_BLOCKS):
                continue
            steps = places.steps_to(node, child, self.original(node))
            if steps:
                base = _put(base, steps, self.resolved(child))
            elif child in self.rewrites:
                raise EditError(f"what stands in line {self.line(child)} cannot be replaced by itself")
            else:
                base = self.changed_inside(child, base)
        if node in self.inside:
            base = self._with_items(node, base, self.inside[node])
        return self.with_blocks(node, base)

    # -- arguments, elements and parameters

    def _with_items(self, node: ast.AST, base: Any, edits: Sequence[Any]) -> Any:
        self.done.update(map(id, edits))
        for edit in edits:
            if isinstance(edit, AddArgument) and edit.after is not None:
                place = places.arguments_of(edit.call).index(edit.after)  # type: ignore[arg-type]
                base = arguments.with_argument(base, place + 1, edit.text)
        gone = [edit.item for edit in edits if isinstance(edit, DropArgument)]
        if gone:
            base = self._without(node, base, gone)
        for edit in edits:
            if isinstance(edit, AddArgument) and edit.after is None:
                base = arguments.with_argument(base, 0 if edit.first else None, edit.text)
            elif isinstance(edit, AddParameter):
                base = arguments.with_parameter(base, edit)
        return base

    def _without(self, node: ast.AST, base: Any, gone: list[ast.AST]) -> Any:
        fields: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
        for item in gone:
            parent, steps = item, list[places.Step]()
            while parent is not node:  # a parameter is below the signature of its function
                item, parent = parent, self.tree.parent(parent) or node
                steps = [*places.steps_to(parent, item, self.original(parent)), *steps]
            last = max(i for i, (_, index) in enumerate(steps) if index is not None)
            index = steps[last][1]
            assert index is not None
            fields[tuple(name for name, _ in steps[: last + 1])].add(index)
        for path, indices in fields.items():
            way: list[places.Step] = [(name, None) for name in path]
            owner = places.follow(base, way[:-1])
            base = _put(base, way, arguments.without(getattr(owner, path[-1]), indices))
        return base

    # -- edits of one node

    def _settle(self, node: ast.AST, rewrites: list[Replace]) -> None:
        """Leave out what yields to another replacement.

        Raises:
            EditError: when two edits replace the node.
        """
        whole = [edit for edit in rewrites if not edit.is_around]
        if len(whole) > 1:
            firm = [edit for edit in whole if not edit.yielding] or whole[:1]
            if len(firm) > 1:
                raise self.collision(node, firm[0], firm[1])
            for edit in whole:
                if edit is not firm[0]:
                    rewrites.remove(edit)
                    self.done.add(id(edit))

    # -- for reports

    def line(self, node: Any) -> int:
        """The line of a node in its file, of several that are converted together."""
        return self.tree.locate(self.tree.start(node))[1]

    def collision(self, node: Any, one: Edit, other: Edit) -> EditError:
        """The complaint of two edits of which only one can be made."""
        return EditError(f"two edits meet in line {self.line(node)}", (one, other))

    def quotes_around(self, node: ast.AST) -> frozenset[str]:
        """The quotes of the f-strings around a node."""
        strings = (
            self.original(around) for around in self.tree.ancestors(node) if isinstance(around, ast.JoinedStr)
        )
        return frozenset(part.start[-1] for string in strings for part in _strings(string))


def _strings(node: Any) -> list[Any]:
    if isinstance(node, cst.ConcatenatedString):
        return [*_strings(node.left), *_strings(node.right)]
    return [node] if isinstance(node, cst.FormattedString) else []


def _within(left: Sequence[Any], node: Any, right: Sequence[Any]) -> Any:
    return node.with_changes(lpar=[*left, *node.lpar], rpar=[*node.rpar, *right])


def _put(node: Any, steps: Sequence[places.Step], new: Any) -> Any:
    """A node with another one at the end of some steps."""
    (name, index), *rest = steps
    old = getattr(node, name) if index is None else getattr(node, name)[index]
    if rest:
        new = _put(old, rest, new)
    elif isinstance(new, cst.BaseExpression) and isinstance(old, cst.BaseExpression):
        if templates.is_looser(new, old):
            new = fitting(new, node, name)
    if index is not None:
        items = [*getattr(node, name)]
        items[index] = new
        new = items
    return node.with_changes(**{name: new})
