"""Numbers in the user's source that are multiplied in memory, as a module is loaded."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelify.verify.observe.context import Context

Extent = tuple[int, int, int, int]
"""Line and column, from 1 and 0, of the beginning and of the end of an expression."""


def extent_of(node: ast.expr) -> Extent:
    """Where an expression stands."""
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0


def install(context: Context, places: Mapping[str, Collection[Any]], factor: int) -> None:
    """Multiply what is loaded from now on; what else changes the modules comes after it.

    Args:
        context: of the run.
        places: extents by the file that they are in.
        factor: by which each is multiplied.
    """
    after = context.rewrite

    def rewrite(tree: ast.Module, file: str) -> None:
        if wanted := {tuple(extent) for extent in places.get(context.translate(file), ())}:
            _Multiplier(wanted, factor).visit(tree)
        if after is not None:
            after(tree, file)

    context.rewrite = rewrite


class _Multiplier(ast.NodeTransformer):
    def __init__(self, wanted: set[tuple[Any, ...]], factor: int) -> None:
        self.wanted = wanted
        self.factor = factor

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and extent_of(node) in self.wanted:
            product = ast.BinOp(node, ast.Mult(), ast.Constant(self.factor))
            for new in (product, product.right):
                ast.copy_location(new, node)
            return product
        return self.generic_visit(node)
