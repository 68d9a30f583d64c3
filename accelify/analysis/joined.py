"""Several modules as one tree, so that a project is analysed and edited like one script.

The modules' bytes are laid end to end with a boundary line between them; their nodes are moved to the lines that they
have there. Every question about places and every edit then works as in a single script, and the result is cut at the
boundaries again.
"""

from __future__ import annotations

import ast
import bisect
from collections.abc import Sequence

from accelify.analysis.syntax import Tree, walk

# The nodes that have a position.
_PLACED = (ast.stmt, ast.expr, ast.excepthandler, ast.arg, ast.keyword, ast.alias, ast.pattern)
_BOUNDARY = b"# ==== accelify module boundary 5b1d ====\n"


class JoinedTree(Tree):
    """Trees of several modules, the entry script's first.

    Modules whose line ends differ are joined with those of Unix and get theirs back when they are cut.

    Args:
        trees: the modules.
        joined: how many of them, from the first, were joined before in this order: their nodes have moved already.

    Raises:
        ValueError: when line ends differ within a module too, so that they could not be put back.
    """

    def __init__(self, trees: Sequence[Tree], joined: int = 0) -> None:
        self.trees = list(trees)
        self.starts: list[int] = []
        self._differ = len({tree.newline for tree in trees}) > 1
        self._complete = [not tree.data or tree.data.endswith((b"\n", b"\r")) for tree in trees]
        data = b""
        for tree, complete in zip(trees, self._complete, strict=True):
            self.starts.append(len(data))
            own, newline = tree.data, tree.newline.encode()
            if self._differ:
                own, newline = _unix_ends(own, newline), b"\n"
            data += own + (b"" if complete else newline) + _BOUNDARY
        self._lay_out(trees[0].path, data)
        for tree, start in zip(trees[joined:], self.starts[joined:], strict=True):
            shift = bisect.bisect_right(self.line_starts, start) - 1
            if shift:
                for node in walk(tree.module):
                    if isinstance(node, _PLACED):
                        node.lineno += shift
                        node.end_lineno = (node.end_lineno or 0) + shift
        self.module = trees[0].module
        for tree in trees:
            self._take(tree)

    def locate(self, offset: int) -> tuple[str, int, int]:
        """Path, line and column of an offset in the module that contains it."""
        index = bisect.bisect_right(self.starts, offset) - 1
        line, column = self.position(offset)
        first, _ = self.position(self.starts[index])
        return self.trees[index].path, line - first + 1, column

    def parts(self) -> list[tuple[ast.Module, int, int]]:
        """The modules that are joined, each with the bytes at which it begins and ends."""
        ends = [*self.starts[1:], len(self.data)]
        return [
            (tree.module, start, end - len(_BOUNDARY))
            for tree, start, end in zip(self.trees, self.starts, ends, strict=True)
        ]

    def paths(self) -> list[str]:
        """What the modules that are joined are called."""
        return [tree.path for tree in self.trees]

    def cut(self, data: bytes) -> list[bytes]:
        """The edited modules, one by one, in their original form."""
        parts = data.split(_BOUNDARY)[:-1]
        found = []
        for part, tree, complete in zip(parts, self.trees, self._complete, strict=True):
            newline = self.newline.encode()
            own = part if complete or not part.endswith(newline) else part[: -len(newline)]
            found.append(own.replace(b"\n", tree.newline.encode()) if self._differ else own)
        return found


def _unix_ends(data: bytes, newline: bytes) -> bytes:
    if data.count(b"\r") != data.count(newline) * newline.count(b"\r"):
        raise ValueError("the line ends of one of them differ from line to line")
    if newline == b"\r\n" and data.count(b"\n") != data.count(newline):
        raise ValueError("the line ends of one of them differ from line to line")
    return data.replace(newline, b"\n")
