"""Reads, listings and tests of files around statements that write: the processes that do not write wait for them."""

from __future__ import annotations

import ast

from accelify.analysis.files.asked_paths import (
    bare_path,
    needed_at_once,
    reads_by_name,
)
from accelify.analysis.files.effect_sites import LISTING
from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.listed_beside import is_listed_beside
from accelify.analysis.files.listed_later import ListedLater
from accelify.analysis.files.reading_calls import READING
from accelify.analysis.files.writing_calls import opens_for_writing
from accelify.analysis.statements.statement_calls import calls_done
from accelify.analysis.syntax import text_of, walk
from accelify.transforms.base import Context
from accelify.transforms.writing_statements import runs_command, written_paths

_REARRANGING = ("os.rename", "os.replace", "os.remove", "os.unlink", "shutil.")
_LOG_FILES = frozenset({"logging.FileHandler", "logging.basicConfig", "logging.handlers.RotatingFileHandler"})


def needs_at_once(context: Context, run: list[ast.stmt]) -> bool:
    """Whether what some statements write or make is asked for, imported or read by its name after them."""
    paths = {text_of(path) for stmt in run for path in written_paths(context, stmt)}
    made = [call for call in calls_done(run) if makes_folder(call)]
    folders = {text_of(call.args[0]) for call in made if call.args}
    folders |= {text_of(c.func.value) for c in made if isinstance(c.func, ast.Attribute) and not c.args}
    if not paths and not folders:
        return False
    folder = [path for call in made if (path := folder_made(call)) is not None]
    later = ListedLater(context.script, context.effects.qualname, context.everywhere)
    if folder and later.is_listed(run[-1], folder):
        return True
    return needed_at_once(context.script, run[-1], paths, folders)


def read_back(context: Context, written: list[ast.stmt], until: ast.stmt | None = None) -> bool:
    """Whether a file that some statements write is read after them, here or in a function that gets its path."""
    tree, script = context.tree, context.script
    paths = {text_of(path) for stmt in written for path in written_paths(context, stmt)}
    calls = calls_done(written)
    # What a command writes cannot be seen, and in a new folder every process may open its log.
    anything = any(runs_command(context, call) for call in calls)
    folders = {text_of(call.args[0]) for call in calls if makes_folder(call) and call.args}
    folder = any(makes_folder(call) for call in calls)
    if not paths and not anything and not folder:
        return False
    for node in script.scope_of(written[-1]).nodes:
        if not isinstance(node, ast.Call) or not tree.is_after(node, written[-1]):
            continue
        if until is not None and tree.is_after(node, until):
            continue
        given = [text_of(a) for a in [*node.args, *[kw.value for kw in node.keywords]]]
        name = script.qualname(node.func) or ""
        if folder and name in _LOG_FILES:
            return True
        if name.startswith(LISTING) and folders.intersection(given[:1]):
            return True
        if anything and (
            name.startswith(READING) or any(context.effects.of(s).reads for s in script.callees(node))
        ):
            return True
        if name.startswith(READING) and opens_for_writing(node, name) is None:
            every = [*node.args, *[kw.value for kw in node.keywords]]
            if any(text_of(n) in paths for a in every for n in walk(a) if isinstance(n, ast.expr)):
                return True
        callees = script.callees(node)
        if not callees and reads_by_name(name) and opens_for_writing(node, name) is None:
            if paths & {text_of(bare_path(a)) for a in node.args}:
                return True
        if any(context.effects.of(callee).reads for callee in callees):
            if any(path == text or path.startswith(f"{text}.") for path in paths for text in given):
                return True
    return False


def read_before(context: Context, run: list[ast.stmt]) -> bool:
    """Whether something is removed, or written anew, that all processes have just read."""
    tree, script = context.tree, context.script
    block = tree.block_of(run[0])[2]
    written = {text_of(path) for stmt in run for path in written_paths(context, stmt)}
    # A process at a step of the training knows that the others have reached it.
    for stmt in reversed(block[: block.index(run[0])] if written else []):
        if context.meets_others(stmt):
            break
        if any(isinstance(node, ast.Call) and _reads_one(context, node, written) for node in walk(stmt)):
            return True
    removed = {
        text_of(call.args[0])
        for call in calls_done(run)
        if call.args and (script.qualname(call.func) or "").startswith(_REARRANGING)
    }
    for node in script.scope_of(run[0]).nodes if removed else ():
        if not isinstance(node, ast.Call) or tree.is_before(run[0], node):
            continue
        if _reads_one(context, node, removed):
            return True
    return False


def _reads_one(context: Context, call: ast.Call, paths: set[str]) -> bool:
    """Whether a call reads one of some files, which it gets by the same expression."""
    name = context.script.qualname(call.func) or ""
    reads = name.startswith(READING) and opens_for_writing(call, name) is None
    reads = reads or any(context.effects.of(s).reads for s in context.script.callees(call))
    given = [*call.args, *[kw.value for kw in call.keywords]]
    return reads and any(text_of(a) in paths for a in given)


def rearranged(context: Context, run: list[ast.stmt]) -> ast.stmt | None:
    """The statement after which all have to wait where files are moved or removed, or commands run, before the
    training: the next statement that reads the folders must not find them half done."""
    tree, script = context.tree, context.script
    if not any(
        (script.qualname(call.func) or "").startswith(_REARRANGING) or runs_command(context, call)
        for call in calls_done(run)
    ):
        return None
    around = run[-1]
    for ancestor in tree.ancestors(run[-1]):
        if not isinstance(ancestor, (ast.For, ast.While, ast.If)) or ancestor is script.main_guard:
            break
        if script.trains(ancestor):
            break
        around = ancestor
    block = tree.block_of(around)[2]
    trains_later = any(script.trains(s) for s in block[block.index(around) + 1 :])
    return around if trains_later and not script.trains(around) and context.runs_everywhere(around) else None


def is_listed(context: Context, run: list[ast.stmt]) -> bool:
    """Whether the folder of what some statements write is listed next to them."""
    paths = [path for stmt in run for path in written_paths(context, stmt)]
    return is_listed_beside(context.script, run[-1], paths)


def makes_data(context: Context, run: list[ast.stmt]) -> bool:
    """Whether a command is run before the training, which may need what it leaves."""
    tree, script = context.tree, context.script
    if not any(runs_command(context, call) for call in calls_done(run)) or script.enclosing_loops(run[0]):
        return False
    body = script.scope_of(run[0]).nodes
    return any(isinstance(s, ast.stmt) and tree.is_after(s, run[-1]) and script.trains(s) for s in body)
