"""Statements that never run, after a `return` or `raise` of the same block: what they print, nobody sees."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.syntax import Node, Tree

_LEAVING = frozenset({ast.Return, ast.Raise, ast.Continue, ast.Break})
# What makes a function a generator wherever it is.
_ANYWHERE = (ast.Yield, ast.YieldFrom)


def reached(tree: Tree, nodes: Iterable[Node]) -> list[Node]:
    """The nodes of a function without those that never run.

    Args:
        tree: the module's.
        nodes: all of them, or those of some of its statements.
    """
    every = list(nodes)
    spans = []
    for node in every:
        if type(node) in _LEAVING:
            block = tree.block_of(node)[2]
            if block[-1] is not node:
                spans.append((tree.end(node), tree.end(block[-1])))
    if not spans:
        return every
    return [node for node in every if isinstance(node, _ANYWHERE) or not _is_within(tree, node, spans)]


def _is_within(tree: Tree, node: Node, spans: list[tuple[int, int]]) -> bool:
    return hasattr(node, "lineno") and any(start <= tree.start(node) < end for start, end in spans)
