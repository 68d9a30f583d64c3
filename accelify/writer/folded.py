"""Lines that no edit touches, as one name each while libcst reads and writes those around them.

It makes some thirty objects of a line, and takes longer for them than all else that is done with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from accelify.analysis.syntax import Tree, children

_NAME = "_accelify_line_"
_NAMES = re.compile(_NAME + r"(\d+)_")
# Imports are not among them: those that are put in are joined with others.
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert)
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


class Folded:
    """A part of a script with names in the place of some of its statements.

    Args:
        tree: the script.
        lines: those statements, in source order.
        start: where the part begins.
        stop: where it ends.
    """

    def __init__(self, tree: Tree, lines: Iterable[ast.stmt], start: int, stop: int) -> None:
        self._lines: list[str] = []
        parts: list[str] = []
        for stmt in lines if not tree.mentions(_NAME) else ():
            begin, end = tree.start(stmt), tree.end(stmt)
            parts += [tree.data[start:begin].decode("utf-8"), f"{_NAME}{len(self._lines)}_"]
            self._lines.append(tree.data[begin:end].decode("utf-8"))
            start = end
        self.text = "".join([*parts, tree.data[start:stop].decode("utf-8")])

    def unfolded(self, code: str) -> str:
        """Code with the lines in the places of their names."""
        return _NAMES.sub(lambda name: self._lines[int(name[1])], code) if self._lines else code


def unchanged_lines(
    block: Sequence[ast.AST], touched: Collection[ast.AST], whole: Collection[ast.AST]
) -> Iterator[ast.stmt]:
    """The simple statements of a block, and of those in it, that lie on one line and stay as they are.

    Args:
        block: the statements.
        touched: the nodes in or beside which something changes.
        whole: statements that are not among them, whatever is touched.
    """
    for node in block:
        if not isinstance(node, _SIMPLE):
            for name in _BLOCKS:
                yield from unchanged_lines(getattr(node, name, ()), touched, whole)
        elif node.lineno == node.end_lineno and node not in whole:
            if node not in touched or not any(child in touched for child in children(node)):
                yield node
