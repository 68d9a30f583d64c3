"""Lines that no edit touches, as one name each while libcst reads and writes those around them.

It makes some thirty objects of a line, and takes longer for them than all else that is done with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from accelify.analysis.syntax import Tree, children

_NAME = "_accelify_line_"
_NAMES = re.compile(_NAME + r"(\d+)_")
# Imports are not among them: those that are put in are joined with others.
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert)
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


class Folded:
    """Some statements of a script with names in the place of those that lie on one line and stay as they are.

    Args:
        tree: the script.
        block: the statements.
        start: where what is read of them begins.
        stop: where it ends.
        touched: the nodes that change, or have one below them or a place beside them that does.
        whole: statements that are read as they are.
    """

    def __init__(
        self,
        tree: Tree,
        block: Sequence[ast.stmt],
        start: int,
        stop: int,
        touched: Collection[ast.AST],
        whole: Collection[ast.AST],
    ) -> None:
        self._lines: list[str] = []
        parts: list[str] = []
        if not tree.mentions(_NAME):
            for stmt in _simple(block):
                if stmt.lineno != stmt.end_lineno or stmt in whole:
                    continue
                if stmt not in touched or not any(child in touched for child in children(stmt)):
                    begin, end = tree.start(stmt), tree.end(stmt)
                    parts += [tree.data[start:begin].decode("utf-8"), f"{_NAME}{len(self._lines)}_"]
                    self._lines.append(tree.data[begin:end].decode("utf-8"))
                    start = end
        self.text = "".join([*parts, tree.data[start:stop].decode("utf-8")])

    def unfolded(self, code: str) -> str:
        """Code with the lines in the places of their names."""
        return _NAMES.sub(lambda name: self._lines[int(name[1])], code) if self._lines else code


def _simple(block: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """The simple statements of a block and of those in it, in source order."""
    for node in block:
        if isinstance(node, _SIMPLE):
            yield node
        else:
            for name in _BLOCKS:
                yield from _simple(getattr(node, name, ()))
