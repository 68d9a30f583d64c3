"""Where the nodes of a script are once its edits are made, and where what is there was before."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from accelify.analysis.syntax import walk
from accelify.writer.errors import EditError
from accelify.writer.writing import Written

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class Moved:
    """Places of a script with its edits made, both ways; `text` is what it reads then, with the script's last line end.

    Args:
        written: the script with its edits made.
    """

    def __init__(self, written: Written) -> None:
        self.written = written
        self.places: dict[ast.AST, tuple[int, int]] = {}
        anchors: dict[int, int] = {0: 0}
        for new, block, old, now in written.regions:
            anchors[now[0]] = old[0]
            anchors[now[1]] = old[1]
            spans = MetadataWrapper(new, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
            for node in _nodes(block):
                found = self._found(node)
                if found is not None and (span := spans.get(found)) is not None:
                    start = now[0] + span.start
                    self.places[node] = (start, start + span.length)
                    if not written.tree.in_fstring(node):
                        anchors.setdefault(start, written.tree.start(node))
        self.anchors = sorted(anchors.items())
        self.starts = [start for start, _ in self.anchors]
        tree, self.text = written.tree, written.data.decode("utf-8")
        if tree.text.rstrip() + tree.newline == tree.text:
            self.text = self.text.rstrip() + tree.newline
        self._lines = [*_LINE.findall(self.text), ""]
        self._begins = [0, *accumulate(len(line.encode("utf-8")) for line in self._lines)]

    def _found(self, node: ast.AST) -> cst.CSTNode | None:
        work = self.written.work
        try:
            found: cst.CSTNode = work.made.get(node) or work.original(node)
        except EditError:
            return None
        return found

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Where a node of the script begins and ends now; where it would, for one that is gone."""
        if node in self.places:
            return self.places[node]
        tree = self.written.tree
        start, end = tree.start(node), tree.end(node)
        at = max((a for a in self.anchors if a[1] <= start), key=lambda a: a[1])
        return at[0] + start - at[1], at[0] + end - at[1]

    def origin(self, line: int, column: int) -> tuple[int, int]:
        """The line and column in the script of what is at some now."""
        line = min(line, len(self._lines))
        offset = self._begins[line - 1] + len(self._lines[line - 1][: column - 1].encode("utf-8"))
        now, old = self.anchors[bisect_right(self.starts, offset) - 1]
        tree = self.written.tree
        return tree.position(min(old + offset - now, tree.size))


def _nodes(block: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for stmt in block for node in walk(stmt) if isinstance(node, (ast.stmt, ast.expr)))
