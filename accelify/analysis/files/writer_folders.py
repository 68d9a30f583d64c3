"""Folders that an experiment writer makes and others open log files in: one process alone has the writer."""

from __future__ import annotations

import ast

from accelify.analysis.files.folders import makings, path_text
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted

_FOLDER_NAMES = ("log_dir", "logdir")


def needs_folder_of(script: ScriptModel, writer: ast.Call) -> ast.Call | None:
    """The call after a writer that opens a log file in the writer's folder, or around it, which nothing else makes.

    Args:
        script: its model.
        writer: the call that makes the writer.
    """
    given = [call_argument(writer, 0, name) for name in _FOLDER_NAMES]
    folder = next((path_text(script, one) for one in given if one is not None), "")
    if not folder:
        return None
    end, scope = script.tree.end(writer), script.scope_of(writer)
    for call in script.calls():
        if script.tree.start(call) < end or script.scope_of(call) is not scope:
            continue
        if not opens_log(call) and not any(
            isinstance(inner, ast.Call) and opens_log(inner)
            for callee in script.callees(call)
            for inner in callee.nodes
        ):
            continue
        for path in [*call.args, *[kw.value for kw in call.keywords]]:
            around = path_text(script, path).rpartition("/")[0]
            if around and f"{folder}/".startswith(f"{around}/") and not _is_made(script, around):
                return call
    return None


def opens_log(call: ast.Call) -> bool:
    """Whether a call opens a log file, which every process does."""
    name = dotted(call.func) or ""
    return name.endswith("FileHandler") or name == "logging.basicConfig"


def _is_made(script: ScriptModel, folder: str) -> bool:
    """Whether the script makes a folder, or one in it, by itself."""
    return any(f"{path_text(script, path)}/".startswith(f"{folder}/") for _, path, _ in makings(script))
