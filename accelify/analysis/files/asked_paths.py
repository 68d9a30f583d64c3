"""Tests whether a file exists: a late process gets another answer than one before the main process wrote the file.

`if not path.is_file(): ...` sends processes into different branches, so they wait after it, or run it in turn.
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.files.writing_calls import opens_for_writing
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, calls_in, text_of

_ASKING = frozenset("exists isfile isdir is_file is_dir lexists access".split())
_FARTHEST = 3  # calls that a question is looked for around
_READING = re.compile(r"^(read|load|open|restore)|read$|from_?file|fromtxt|^Image$")


def asked_paths(test: ast.expr) -> set[str]:
    """The paths of which a condition asks whether they are there, as source."""
    return {
        text_of(call.args[0] if call.args else call.func.value)
        for call in calls_in(test)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING
    }


def after_tests(tree: Tree, stmt: ast.stmt) -> ast.stmt:
    """The statement after which all processes continue that separate at tests around a statement."""
    afterwards = stmt
    for ancestor in tree.ancestors(stmt):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(ancestor, ast.If) and asked_paths(ancestor.test):
            afterwards = ancestor
    while tree.is_elif(afterwards) and isinstance(outer := tree.parent(afterwards), ast.stmt):
        afterwards = outer
    return afterwards


def outermost_question(script: ScriptModel, stmt: ast.stmt) -> ast.stmt:
    """The statement after which all processes continue that separate at a statement, or that loop to write.

    A function that one call alone runs is left for that: `if not os.path.exists(path): make(path)`.
    """
    tree, afterwards = script.tree, after_tests(script.tree, stmt)
    for _ in range(_FARTHEST):
        for loop in script.enclosing_loops(afterwards):
            afterwards = loop if not script.trains(loop) else afterwards
        afterwards = after_tests(tree, afterwards)
        scope = script.scope_of(afterwards)
        calls = script.callers(scope) if scope.kind == "function" else []
        outer = after_tests(tree, tree.statement(calls[0])) if len(calls) == 1 else afterwards
        if not isinstance(outer, ast.If) or not asked_paths(outer.test):
            return afterwards
        afterwards = outer
    return afterwards


def needed_at_once(script: ScriptModel, stmt: ast.stmt, paths: set[str], folders: set[str]) -> bool:
    """Whether processes test for what was written or made, enter it, import it or read it after a statement.

    Args:
        script: its model.
        stmt: the statement.
        paths: the files that are written there, as source.
        folders: the folders that are made there, as source.
    """
    tree = script.tree
    names = {text[1:-1] for text in paths if text[:1] in "\"'" and text.endswith((".py'", '.py"'))}
    for node in script.scope_of(stmt).nodes:
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            if tree.is_after(node, stmt) and asked_paths(node.test) & (paths | folders):
                return True
        elif isinstance(node, ast.Call) and tree.is_after(node, stmt) and not tree.in_fstring(node):
            given = {text_of(bare_path(a)) for a in node.args}
            if given & folders and script.qualname(node.func) == "os.chdir":
                return True
            if given & paths and not script.callees(node) and reads_by_name(script.qualname(node.func) or ""):
                return opens_for_writing(node, script.qualname(node.func)) is None
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and names and tree.is_after(node, stmt):
            named = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            if any(f"{name}.py" in names for name in named):
                return True
    return False


def bare_path(node: ast.expr) -> ast.expr:
    """`path` of `str(path)` and `Path(path)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        if text_of(node.func).rpartition(".")[2] in ("str", "Path", "fspath"):
            return node.args[0]
    return node


def reads_by_name(name: str) -> bool:
    """Whether a library's function reads a file by its name: `torchvision.io.read_image`, `PIL.Image.open`."""
    return bool(_READING.search(name.rpartition(".")[2]))
