"""Files that the main process writes into a folder which all processes list further down.

table.to_csv(folder + "a.csv")
if "b.csv" in os.listdir(folder): ...    # who lists it early goes another way, or reads half of a file
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from accelify.analysis.files.folders import path_text
from accelify.analysis.script import ScriptModel

_LISTING = frozenset("os.listdir os.scandir os.walk glob.glob glob.iglob".split())
_WORDS = (b"listdir", b"scandir", b"os.walk", b"glob")


def is_listed_beside(script: ScriptModel, stmt: ast.stmt, paths: Collection[ast.expr]) -> bool:
    """Whether the folder of files that a statement writes is listed after it, in the same round of the same function.

    Args:
        script: its model.
        stmt: the statement.
        paths: the files' paths, as it writes them.
    """
    tree = script.tree
    if not paths or not any(tree.mentions(word) for word in _WORDS):
        return False
    end, loops = tree.end(stmt), set(script.enclosing_loops(stmt))
    listed = [
        node.args[0]
        for node in script.scope_of(stmt).of_type(ast.Call)
        if node.args and tree.start(node) > end
        if script.qualname(node.func) in _LISTING and loops.issubset(script.enclosing_loops(node))
    ]
    folders = {folder for one in listed if (folder := _folder(path_text(script, one)))}
    return any(path_text(script, path).startswith(f"{folder}/") for path in paths for folder in folders)


def _folder(path: str) -> str:
    """The folder of a pattern (`runs/*.csv`), or the path itself."""
    return path.partition("*")[0].rpartition("/")[0] if "*" in path else path
