"""Folders that are asked for and made: which calls make one, and whether two expressions tell the same path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.scopes import handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, dotted, names_in, target_names, walk

_ASKING = ("exists", "isdir", "is_dir", "lexists")
_KEEPING = ("str", "Path", "pathlib.Path")
_PLACEHOLDER = re.compile(r"%[sd]|\{\d?\}")
_FARTHEST = 6


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
            told = {
                path.id: _with_parents(inner)
                for inner in callee.nodes
                if isinstance(inner, ast.Call) and makes_folder(inner)
                if isinstance(path := folder_made(inner), ast.Name)
            }
            yield from ((call, given, told[name]) for given, name in handed_to(call, callee) if name in told)


def _with_parents(call: ast.Call) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) == "makedirs" or (
        call_keyword(call, "parents") is not None
    )


def paths_asked(test: ast.expr) -> list[ast.expr]:
    """The paths of which a condition asks whether they are there."""
    return [
        call.args[0] if call.args else call.func.value
        for call in walk(test)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING
    ]


def questions(script: ScriptModel) -> list[tuple[ast.stmt, list[ast.expr]]]:
    """Where what is there already decides how the program goes on, with the paths: it leaves, or takes another name."""
    found: list[tuple[ast.stmt, list[ast.expr]]] = []
    for node in script.tree.nodes(ast.If, ast.While):
        paths = paths_asked(node.test)
        if paths and _decides(script, node, paths):
            found.append((node, paths))
    inside = {script.scope_of(q): paths for q, paths in found if isinstance(q, ast.If)}
    for call in script.calls() if inside else ():
        # A helper that asks of what it is told, and leaves.
        for callee in script.callees(call) & inside.keys():
            names = {p.id for p in inside[callee] if isinstance(p, ast.Name)}
            given = [argument for argument, name in handed_to(call, callee) if name in names]
            if given:
                found.append((script.tree.statement(call), given))
    return found


def asked_beside(script: ScriptModel, making: ast.stmt) -> ast.If | None:
    """The question that a folder is made behind, where it is not there, and whose other branch leaves or asks.

    `if os.path.exists(path): ... sys.exit() ... else: os.makedirs(path)`: who asks late must not come into the first.
    """
    branch = script.tree.parent(making)
    if not isinstance(branch, ast.If) or not paths_asked(branch.test):
        return None
    other = branch.orelse if making in branch.body else branch.body
    for stmt in other:
        for inner in walk(stmt):
            asks = isinstance(inner, ast.Call) and script.qualname(inner.func) == "builtins.input"
            if (
                asks
                or isinstance(inner, ast.Raise)
                or (isinstance(inner, ast.Expr) and _leaves(script, inner))
            ):
                return branch
    return None


def _decides(script: ScriptModel, node: ast.If | ast.While, paths: list[ast.expr]) -> bool:
    last = node.body[-1]
    if isinstance(node, ast.If):
        if isinstance(last, ast.Raise) or _leaves(script, last):
            return True
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
    """The text that an expression makes, in braces what is not told."""
    unknown = f"{{{ast.unparse(node)}}}"
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
    """A pattern with what stands in its places, None where it says more than where they are."""
    pieces = _PLACEHOLDER.split(pattern)
    if len(pieces) != len(given) + 1 or any("%" in p or "{" in p for p in pieces):
        return None
    return pieces[0] + "".join(value + piece for value, piece in zip(given, pieces[1:], strict=True))


def _only_value(script: ScriptModel, name: ast.Name) -> ast.expr | None:
    """What a name holds that is bound once."""
    scope = script.scope_of(name).resolve(name.id) if script.tree.assigns(name.id) else None
    if scope is None or any(a.arg == name.id for a in scope.parameters()):
        return None
    stores = [
        n
        for n in script.tree.nodes(ast.Name)
        if n.id == name.id and isinstance(n.ctx, ast.Store) and script.scope_of(n).resolve(n.id) is scope
    ]
    stmt = script.tree.parent(stores[0]) if len(stores) == 1 else None
    return stmt.value if isinstance(stmt, ast.Assign) and stmt.targets == stores else None


__all__ = ["asked_beside", "folder_made", "makes_folder", "makings", "path_text", "paths_asked", "questions"]
