"""Where all processes wait for what one of them writes and what functions read that run behind it."""

from __future__ import annotations

import ast

from accelify.analysis.files.asked_paths import asked_paths, outermost_question
from accelify.analysis.files.read_later import ReadLater
from accelify.transforms.base import Context


def read_in_functions(
    context: Context, later: ReadLater, written: list[ast.expr], last: ast.stmt
) -> ast.stmt | None:
    """The statement behind which all wait for files that are read by functions, or by another spelling of the path.

    Behind a question to which all come once, a read of what may be the file is enough. None where nothing reads them,
    where not all come, and where all wait already.

    Args:
        context: of the script.
        later: what tells who reads files.
        written: the paths of the files.
        last: the statement with which their writing ends.
    """
    script, tree = context.script, context.tree
    if not written:
        return None
    behind = outermost_question(script, last)
    if script.enclosing_loops(behind) or not context.runs_everywhere(behind):
        return None
    block = tree.block_of(behind)[2]
    following = block[block.index(behind) + 1 :][:1]
    asked = isinstance(behind, ast.If) and bool(asked_paths(behind.test))
    if context.waiting.intersection(following) or not later.is_read(behind, written, untold=asked):
        return None
    if context.accelerator(behind) is None:
        return None
    context.waiting.update(following)
    return behind


def all_wait_next(context: Context, stmt: ast.stmt) -> bool:
    """Whether all wait at once behind a statement, or behind the `if` that it ends: for who reads a file there."""
    tree = context.tree
    while True:
        owner, _, block = tree.block_of(stmt)
        following = block[block.index(stmt) + 1 :][:1]
        if following or not isinstance(owner, ast.If):
            return bool(context.waiting.intersection(following))
        stmt = owner


__all__ = ["all_wait_next", "read_in_functions"]
