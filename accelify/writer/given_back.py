"""What libcst's parser reads and does not keep: put back, so that its tree gives the text as it was.

libcst 1.9 loses the blank of `except ValueError :` where no `as` follows. `benchmarks/writer_round_trip.py` looks for
more of the kind.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import libcst as cst

from accelify.analysis.syntax import Tree, walk

_TO_COLON = re.compile(rb"(?:[^:#]|#[^\r\n]*)*?([ \t]*):")


def with_lost_blanks(module: cst.Module, tree: Tree, block: Sequence[ast.stmt]) -> cst.Module:
    """A module with the blanks before the colons of its handlers.

    Args:
        module: what libcst has read of some statements.
        tree: the script.
        block: those statements.
    """
    handlers = [node for stmt in block for node in walk(stmt) if isinstance(node, ast.ExceptHandler)]
    handlers.sort(key=lambda handler: (handler.lineno, handler.col_offset))
    return module.visit(_Blanks([_blank(tree, handler) for handler in handlers]))


def _blank(tree: Tree, handler: ast.ExceptHandler) -> str | None:
    """What stands before the colon of a handler; None for one that libcst reads well."""
    if handler.type is None or handler.name is not None:
        return None
    found = _TO_COLON.match(tree.data, tree.end(handler.type))
    return found[1].decode() if found is not None else None


class _Blanks(cst.CSTTransformer):
    def __init__(self, blanks: Sequence[str | None]) -> None:
        super().__init__()
        self.blanks = list(reversed(blanks))
        self.of: dict[cst.CSTNode, str | None] = {}

    def _note(self, node: cst.CSTNode) -> None:
        self.of[node] = self.blanks.pop() if self.blanks else None

    def _restored(self, node: cst.CSTNode, updated: Any) -> Any:
        blank = self.of.get(node)
        return (
            updated
            if not blank
            else updated.with_changes(whitespace_before_colon=cst.SimpleWhitespace(blank))
        )

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self._note(node)

    def visit_ExceptStarHandler(self, node: cst.ExceptStarHandler) -> None:
        self._note(node)

    def leave_ExceptHandler(self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler) -> Any:
        return self._restored(original_node, updated_node)

    def leave_ExceptStarHandler(
        self, original_node: cst.ExceptStarHandler, updated_node: cst.ExceptStarHandler
    ) -> Any:
        return self._restored(original_node, updated_node)
