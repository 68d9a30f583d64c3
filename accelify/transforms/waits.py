"""Where all processes wait for files that one of them writes and that functions which run later read."""

from __future__ import annotations

import ast

from accelify.analysis.files.asked_paths import asked_paths, outermost_question
from accelify.analysis.files.pictures import saves_picture
from accelify.analysis.files.read_later import ReadLater
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.statement_calls import calls_done
from accelify.transforms.base import Context

_IMAGE_WRITERS = frozenset("imwrite imsave write_png write_jpeg save".split())


def read_in_functions(
    context: Context, later: ReadLater, written: list[ast.expr], last: ast.stmt
) -> ast.stmt | None:
    """The statement after which all wait for files that are read by functions, or by another spelling of the path.

    After a question that all reach once, a read of what may be the file is enough. None where nothing reads them,
    where not all reach it, and where all wait already.

    Args:
        context: of the script.
        later: the analysis that knows who reads files.
        written: the paths of the files.
        last: the statement with which their writing ends.
    """
    script, tree = context.script, context.tree
    if not written:
        return None
    afterwards = outermost_question(script, last)
    if script.enclosing_loops(afterwards) or not context.runs_everywhere(afterwards):
        return None
    block = tree.block_of(afterwards)[2]
    following = block[block.index(afterwards) + 1 :][:1]
    asked = isinstance(afterwards, ast.If) and bool(asked_paths(afterwards.test))
    if context.waiting.intersection(following) or not later.is_read(afterwards, written, untold=asked):
        return None
    if context.accelerator(afterwards) is None:
        return None
    context.waiting.update(following)
    return afterwards


def made_one_by_one(context: Context, run: list[ast.stmt], files: list[ast.expr]) -> ast.stmt | None:
    """The statement after which all wait for the files of a data set, which a loop makes before the training.

    None where that loop trains or comes after prepare, where nothing is trained after it, and where not all reach it.

    Args:
        context: of the script.
        run: the statements that write.
        files: the paths of what they write, but for pictures.
    """
    script = context.script
    afterwards = outermost_question(script, run[-1])
    calls = [call for call in calls_done(run) if is_image_writer(script.qualname(call.func) or "")]
    if context.plan.after_prepare(afterwards):
        return None  # the loaders are there: what a model has made of the data
    if script.enclosing_loops(afterwards) or not (files or calls or _saves_pictures(context, run)):
        return None
    if not _in_plain_loop(script, run[-1]) or not _trains_after(script, afterwards, frozenset()):
        return None
    if all_wait_next(context, afterwards) or not context.runs_everywhere(afterwards):
        return None
    return afterwards if context.accelerator(afterwards) is not None else None


def is_image_writer(name: str) -> bool:
    """Whether a library's function writes one picture as it is: a sample of a data set, and no plot."""
    return name.rpartition(".")[2] in _IMAGE_WRITERS


def _saves_pictures(context: Context, run: list[ast.stmt]) -> bool:
    bindings = context.locations[1].bindings
    return any(saves_picture(context.script, bindings, call) for call in calls_done(run))


def _in_plain_loop(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement, or every call of its function, is in a loop, none of which trains."""
    loops = script.enclosing_loops(stmt)
    if loops:
        return not script.trains_around(stmt)
    scope = script.scope_of(stmt)
    calls = script.callers(scope) if scope.kind == "function" else []
    return bool(calls) and all(script.enclosing_loops(c) and not script.trains_around(c) for c in calls)


def _trains_after(script: ScriptModel, stmt: ast.stmt, seen: frozenset[Scope]) -> bool:
    """Whether a model is trained after a statement, in its function or in one that calls it."""
    scope = script.scope_of(stmt)
    later = (n for n in scope.nodes if isinstance(n, ast.stmt) and script.tree.is_after(n, stmt))
    if any(map(script.trains, later)):
        return True
    calls = script.callers(scope) if scope.kind == "function" and scope not in seen else []
    return any(_trains_after(script, script.tree.statement(c), seen | {scope}) for c in calls)


def all_wait_next(context: Context, stmt: ast.stmt) -> bool:
    """Whether all wait right after a statement, or after the `if` that it ends, before a file is read there."""
    tree = context.tree
    while True:
        owner, _, block = tree.block_of(stmt)
        following = block[block.index(stmt) + 1 :][:1]
        if following or not isinstance(owner, ast.If):
            return bool(context.waiting.intersection(following))
        stmt = owner
