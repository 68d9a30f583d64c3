"""Folders that are tested for and made: which calls make one, and whether two expressions are the same path."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from accelify.analysis.files.effect_sites import ASKING
from accelify.analysis.files.numbered_folders import is_numbered
from accelify.analysis.scopes import handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching_assignments import reaching_assignments
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    calls_in,
    dotted,
    names_in,
    target_names,
    text_of,
    walk,
)

_ASKING = ("exists", "isdir", "is_dir", "lexists")
_KEEPING = ("str", "Path", "pathlib.Path")
_PLACEHOLDER = re.compile(r"%[sd]|\{\d?\}")
_FARTHEST = 6
_REMOVING = frozenset("rmtree move rename renames replace rmdir removedirs remove unlink".split())
# Methods of a path, which is what they remove.
_REMOVING_ITSELF = frozenset("rmdir unlink rename replace rmtree".split())


class Asked(NamedTuple):
    """A call that makes a folder after a test for it, and the statements before which all must have tested."""

    call: ast.Call
    making: ast.stmt
    removing: tuple[ast.stmt, ...] = ()  # in the other branch of the question


def makes_folder(call: ast.Call) -> bool:
    """Whether a call is one of `os.makedirs`, `os.mkdir` and `path.mkdir`, by its name."""
    name = dotted(call.func) or str(getattr(call.func, "attr", ""))
    return name.rsplit(".", 1)[-1] in ("mkdir", "makedirs")


def folder_made(call: ast.Call) -> ast.expr | None:
    """The path of the folder that such a call makes."""
    if isinstance(call.func, ast.Attribute) and dotted(call.func.value) != "os":
        return call.func.value
    return call_argument(call, 0, "name") or call_argument(call, 0, "path")


def makings(script: ScriptModel) -> Iterator[tuple[ast.Call, ast.expr, bool]]:
    """The calls that make a folder, or whose function does, with its path and whether those around it are made too."""
    for call in script.calls():
        made = folder_made(call) if makes_folder(call) else None
        if made is not None:
            yield call, made, _with_parents(call)
        for callee in script.callees(call):
            stated = {
                path.id: _with_parents(inner)
                for inner in callee.of_type(ast.Call)
                if makes_folder(inner)
                if isinstance(path := folder_made(inner), ast.Name)
            }
            yield from (
                (call, given, stated[name]) for given, name in handed_to(call, callee) if name in stated
            )


def _with_parents(call: ast.Call) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) == "makedirs" or (
        call_keyword(call, "parents") is not None
    )


def paths_asked(test: ast.expr) -> list[ast.expr]:
    """The paths of which a condition asks whether they are there."""
    return [
        call.args[0] if call.args else call.func.value
        for call in calls_in(test)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING
    ]


def questions(script: ScriptModel) -> list[tuple[ast.stmt, list[ast.expr]]]:
    """Where an existing folder decides how the program goes on, with the paths: it leaves, or takes another name."""
    found: list[tuple[ast.stmt, list[ast.expr]]] = []
    for node in script.tree.nodes(ast.If, ast.While):
        paths = paths_asked(node.test)
        if paths and _decides(script, node, paths):
            found.append((node, paths))
    inside = {script.scope_of(q): paths for q, paths in found if isinstance(q, ast.If)}
    for call in script.calls() if inside else ():
        # A helper that tests its argument, and leaves.
        for callee in script.callees(call) & inside.keys():
            names = {p.id for p in inside[callee] if isinstance(p, ast.Name)}
            given = [argument for argument, name in handed_to(call, callee) if name in names]
            if given:
                found.append((script.tree.statement(call), given))
    return found


def asked_beside(script: ScriptModel, making: ast.stmt) -> ast.If | None:
    """The test under which a folder is made if it does not exist, and whose other branch leaves or asks.

    `if os.path.exists(path): ... sys.exit() ... else: os.makedirs(path)`: who asks late must not come into the first.
    """
    branch = script.tree.parent(making)
    if not isinstance(branch, ast.If) or not paths_asked(branch.test):
        return None
    other = branch.orelse if making in branch.body else branch.body
    for stmt in other:
        for inner in walk(stmt):
            asks = isinstance(inner, ast.Call) and script.qualname(inner.func) in ASKING
            if (
                asks
                or isinstance(inner, ast.Raise)
                or (isinstance(inner, ast.Expr) and _leaves(script, inner))
            ):
                return branch
    return None


def folders_asked_for(script: ScriptModel, skip: Callable[[ast.Call], bool]) -> Iterator[Asked]:
    """The folders that are made under a test whether they exist; `skip` is true for calls to leave out."""
    tree = script.tree
    asked = [(q, {path_text(script, p) for p in paths}) for q, paths in questions(script)]
    for call, path, parents in makings(script):
        if skip(call):
            continue
        around: ast.stmt = tree.statement(call)
        beside = asked_beside(script, around)
        while (
            beside is None
            and isinstance(parent := tree.parent(around), ast.If)
            and around in parent.body
            and paths_asked(parent.test)
        ):
            around = parent
        # What is in the other branch of this test belongs to the same test.
        before = (
            asked if beside is None else [(beside, {path_text(script, p) for p in paths_asked(beside.test)})]
        )
        made = path_text(script, path) if before else ""
        for question, texts in before:
            if question is around or tree.start(question) >= tree.start(call):
                continue
            if script.scope_of(question) is not script.scope_of(call):
                continue
            if question is not beside and any(a is question for a in tree.ancestors(call)):
                continue
            searched = isinstance(question, ast.While) and any(
                text_of(one) == text_of(path) for one in paths_asked(question.test)
            )
            if searched or any(made == one or (parents and made.startswith(f"{one}/")) for one in texts):
                yield Asked(call, around, _removed_beside(script, beside, around, texts))
                break
        else:
            if is_numbered(script.scope_of(call), path, script.qualname) is not None:
                yield Asked(call, around)


def _removed_beside(
    script: ScriptModel, beside: ast.If | None, making: ast.stmt, asked: set[str]
) -> tuple[ast.stmt, ...]:
    """The first statements in the other branch of a question that remove what it asks for, one on each way."""
    if beside is None:
        return ()
    tree, found = script.tree, list[ast.stmt]()
    other = beside.orelse if making in beside.body else beside.body
    inside = {n for stmt in other for n in walk(stmt)}
    for call in tree.in_order(n for n in inside if isinstance(n, ast.Call)):
        if not any(
            _is_within(one, path_text(script, path)) for path in _removed(script, call) for one in asked
        ):
            continue
        stmt = tree.statement(call)
        # What follows it, or is nested deeper, comes later on the same path.
        if not any(tree.parent(first) in (tree.parent(stmt), *tree.ancestors(stmt)) for first in found):
            found.append(stmt)
    return tuple(found)


def _removed(script: ScriptModel, call: ast.Call) -> Iterator[ast.expr]:
    """The paths that a call removes or renames, or whose function does."""
    path = _path_removed(call)
    if path is not None:
        yield path
    for callee in script.callees(call):
        stated = {
            inner_path.id
            for inner in callee.of_type(ast.Call)
            if isinstance(inner_path := _path_removed(inner), ast.Name)
        }
        yield from (given for given, name in handed_to(call, callee) if name in stated)


def _path_removed(call: ast.Call) -> ast.expr | None:
    module, _, name = (dotted(call.func) or str(getattr(call.func, "attr", ""))).rpartition(".")
    if name in _REMOVING and (module in ("os", "shutil") or isinstance(call.func, ast.Name)):
        return call.args[0] if call.args else None
    if name in _REMOVING_ITSELF and isinstance(call.func, ast.Attribute):
        return call.func.value
    return None


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _decides(script: ScriptModel, node: ast.If | ast.While, paths: list[ast.expr]) -> bool:
    last = node.body[-1]
    if isinstance(node, ast.If):
        if isinstance(last, ast.Raise) or _leaves(script, last):
            return True
        if isinstance(last, ast.If) and any(_leaves(script, b[-1]) for b in (last.body, last.orelse) if b):
            return True  # `if overwrite: shutil.rmtree(path)`, else it leaves
        if isinstance(last, (ast.Return, ast.Continue)):
            block = script.tree.block_of(node)[2]
            return any(script.trains(later) for later in block[block.index(node) + 1 :])
    names = set().union(*map(names_in, paths))
    return any(
        names.intersection(target_names(target))
        for stmt in node.body
        for inner in walk(stmt)
        if isinstance(inner, (ast.Assign, ast.AugAssign))
        for target in (inner.targets if isinstance(inner, ast.Assign) else [inner.target])
    )


def _leaves(script: ScriptModel, last: ast.stmt) -> bool:
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(call, ast.Call) and script.qualname(call.func) in (
        "sys.exit",
        "builtins.exit",
        "os._exit",
        "builtins.quit",
    )


def path_text(script: ScriptModel, node: ast.expr) -> str:
    """A path as text: the same for `"a/" + x`, `f"a/{x}"` and `os.path.join("a", x)`, whatever names it goes by."""
    return re.sub(r"/+", "/", _text(script, node, 0)).removeprefix("./").rstrip("/")


def _text(script: ScriptModel, node: ast.expr, far: int) -> str:
    """The text that an expression makes, with braces for the unknown parts."""
    unknown = f"{{{text_of(node)}}}"
    if far > _FARTHEST:
        return unknown

    def of(*inner: ast.expr) -> list[str]:
        return [_text(script, one, far + 1) for one in inner]

    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(of(*node.values))
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return _text(script, node.value, far + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return ("/" if isinstance(node.op, ast.Div) else "").join(of(node.left, node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        return _filled(str(node.left.value), of(*given)) or unknown
    if isinstance(node, ast.Call) and not node.keywords:
        name = dotted(node.func) or ""
        if name in _KEEPING or name.endswith("path.join"):
            return "/".join(of(*node.args))
        pattern = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(pattern, ast.Constant) and getattr(node.func, "attr", "") == "format":
            return _filled(str(pattern.value), of(*node.args)) or unknown
    value = _only_value(script, node) if isinstance(node, ast.Name) else None
    return unknown if value is None else _text(script, value, far + 1)


def _filled(pattern: str, given: list[str]) -> str | None:
    """A pattern with the values of its placeholders, None where it says more than where they are."""
    pieces = _PLACEHOLDER.split(pattern)
    if len(pieces) != len(given) + 1 or any("%" in p or "{" in p for p in pieces):
        return None
    return pieces[0] + "".join(value + piece for value, piece in zip(given, pieces[1:], strict=True))


def _only_value(script: ScriptModel, name: ast.Name) -> ast.expr | None:
    """The value of a name that is bound once, or that one assignment above sets here."""
    scope = script.scope_of(name).resolve(name.id) if script.tree.assigns(name.id) else None
    if scope is None or scope.takes(name.id):
        return None
    stores = [n for n in script.tree.writes(name.id) if script.scope_of(n).resolve(n.id) is scope]
    stmt = script.tree.parent(stores[0]) if len(stores) == 1 else None
    if isinstance(stmt, ast.Assign) and stmt.targets == stores:
        return stmt.value
    reaching = reaching_assignments(script, name) if len(stores) > 1 else None
    return reaching[0].value if reaching and len(reaching) == 1 else None
