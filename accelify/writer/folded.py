"""Code that no edit touches, as one name for each part of it while libcst reads and writes what is around.

It makes some thirty objects of a line, and takes longer for them than all else that is done with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from accelify.analysis.syntax import Tree, children, walk

_NAME = "_accelify_part_"
_AS_BLANK = " as _accelify_blank_"
_NAMES = re.compile(rf"(?:{_NAME}|{_AS_BLANK})(\d+)_")
# libcst 1.9 reads the blank of `except ValueError :` and does not return it , unless an `as` is there.
_BLANK = re.compile(rb"(?:[^:#]|#[^\r\n]*)*?([ \t]+):")
# Imports are not among them: those that are put in are joined with others.
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert)
# What needs parentheses nowhere, as a name does not.
_EXPRESSIONS = (ast.Call, ast.Attribute, ast.Subscript)
# In these a name, or a place in the text, means something else.
_LEFT_OUT = (ast.JoinedStr, ast.pattern)


class Folded:
    """A part of a script with names in the place of some of its nodes, and of blanks that libcst would lose.

    Args:
        tree: the script.
        block: the statements of that part.
        nodes: statements and expressions on one line each, none inside another.
        start: where the part begins.
        stop: where it ends.
    """

    def __init__(
        self, tree: Tree, block: Iterable[ast.stmt], nodes: Iterable[ast.AST], start: int, stop: int
    ) -> None:
        self._texts: list[str] = []
        parts: list[str] = []
        places: list[tuple[int, int, str]] = []
        if not tree.mentions("_accelify_"):
            places = [(tree.start(node), tree.end(node), _NAME) for node in nodes]
            if re.search(rb"[ \t]:", tree.data[start:stop]):
                places += [(*place, _AS_BLANK) for place in _blanks(tree, block)]
        for begin, end, name in sorted(places):
            parts += [tree.data[start:begin].decode("utf-8"), f"{name}{len(self._texts)}_"]
            self._texts.append(tree.data[begin:end].decode("utf-8"))
            start = end
        self.text = "".join([*parts, tree.data[start:stop].decode("utf-8")])

    def unfolded(self, code: str) -> str:
        """Code with the texts in the places of their names."""
        return _NAMES.sub(lambda name: self._texts[int(name[1])], code) if self._texts else code


def _blanks(tree: Tree, block: Iterable[ast.stmt]) -> Iterator[tuple[int, int]]:
    for node in (node for stmt in block for node in walk(stmt)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and node.name is None:
            if found := _BLANK.match(tree.data, tree.end(node.type)):
                yield found.span(1)


def untouched(
    nodes: Iterable[ast.AST], touched: Collection[ast.AST], read: Collection[ast.AST]
) -> Iterator[ast.AST]:
    """The outermost statements and expressions among some nodes and below them that stay as they are, on one line.

    Args:
        nodes: statements.
        touched: the nodes in or beside which something changes.
        read: nodes that are not among them, whatever is touched.
    """
    for node in nodes:
        below = children(node)
        if isinstance(node, _STATEMENTS):
            foldable = not any(child in touched for child in below)
        else:
            foldable = isinstance(node, _EXPRESSIONS) and node not in touched
        if foldable and node not in read and node.lineno == node.end_lineno:  # type: ignore[attr-defined]
            yield node
        elif not isinstance(node, _LEFT_OUT):
            yield from untouched(below, touched, read)
