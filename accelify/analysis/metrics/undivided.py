"""Totals of a loop that are shown as they are: the sum over all batches is meant, and not their mean.

line = f"loss {total:.3f}"; print(line)
return total                                # total = evaluate(); log({"loss": total})
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted

_SHOWING = frozenset(
    {"print", "info", "debug", "write", "log", "log_metric", "log_value", "add_scalar", "set_postfix"}
)
_SHOWN, _STORED, _WORKED_WITH = "shown", "kept", "worked with"
_TURNING, _TAKING = frozenset({"round", "float", "str"}), frozenset({"item", "cpu", "detach", "numpy"})
# A list of what epochs gave, a learning rate that falls when it no longer gets better.
_KEEPING = frozenset({"append", "step"})
_FARTHEST = 2  # functions that return it


def shown_undivided(script: ScriptModel, loop: ast.For | ast.AsyncFor | ast.While, name: str) -> bool:
    """Whether a total is printed or logged after its loop, or by callers of its function, and never divided."""
    tree, scope = script.tree, script.scope_of(loop)
    owner = scope.resolve(name) if name.isidentifier() else None
    if owner is None:
        return False
    reads = [n for n in script.reads(name, owner) if tree.is_after(n, loop)]
    if any(tree.is_after(n, loop) for n in tree.writes(name) if script.scope_of(n) is scope):
        return all(script.scope_of(n) is scope and is_shown(script, n) for n in reads) and bool(reads)
    whole = all(script.scope_of(n) is scope for n in reads)
    return whole and _all_of(_use(script, read, _FARTHEST) for read in reads) == _SHOWN


def is_shown(script: ScriptModel, read: ast.expr) -> bool:
    """Whether a value is printed or logged as it is."""
    child: ast.AST = read
    for parent in script.tree.ancestors(read):
        if isinstance(parent, ast.stmt) or (
            isinstance(parent, ast.BinOp) and not isinstance(parent.op, ast.Mod)
        ):
            return False
        if isinstance(parent, ast.Call) and child is not parent.func:
            func = parent.func
            last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if last in _SHOWING:
                return True
            if last not in ("format", "round", "float", "str"):
                return False
        child = parent
    return False


def _use(script: ScriptModel, read: ast.expr, far: int) -> str:
    """What is done with a value: it is shown, it is stored or compared as it is, or something is computed from it."""
    if is_shown(script, read):
        return _SHOWN
    child: ast.AST = read
    for parent in script.tree.ancestors(read):
        if isinstance(parent, ast.FormattedValue) or _is_filled_in(parent):
            return _SHOWN
        if isinstance(parent, ast.Return):
            return _given_back(script, read, parent, far)
        if isinstance(parent, ast.Assign):
            return _renamed(script, parent, far)
        if isinstance(parent, ast.Compare):
            return _STORED
        if isinstance(parent, ast.Call):
            called = str(dotted(parent.func) or getattr(parent.func, "attr", "")).rpartition(".")[2]
            if called in _KEEPING:
                return _STORED
            if called not in (_TAKING if child is parent.func else _TURNING):
                return _WORKED_WITH
        elif not isinstance(parent, (ast.Tuple, ast.List, ast.Dict, ast.Attribute)):
            return _WORKED_WITH
        child = parent
    return _WORKED_WITH


def _is_filled_in(node: ast.AST) -> bool:
    """`"%.3f" % total` and `"{:.3f}".format(total)`"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format"


def _given_back(script: ScriptModel, read: ast.expr, given: ast.Return, far: int) -> str:
    """What those who call a function do with what it returns."""
    place = None
    if isinstance(given.value, ast.Tuple) and read in given.value.elts:
        place = given.value.elts.index(read)
    elif given.value is not read:
        return _WORKED_WITH
    calls = script.callers(script.scope_of(given)) if far else []
    names = [_name_of(script, call, place) for call in calls]
    if not names or None in names:
        return _WORKED_WITH
    return _all_of(_read_as(script, name, far - 1) for name in names if name is not None)


def _renamed(script: ScriptModel, stmt: ast.Assign, far: int) -> str:
    """What is done with a value under another name: `best = total`."""
    names = [t for t in stmt.targets if isinstance(t, ast.Name)]
    if not isinstance(stmt.value, (ast.Name, ast.Attribute)) or not far:
        return _STORED
    return _all_of(_read_as(script, name, far - 1) for name in names)


def _read_as(script: ScriptModel, name: ast.Name, far: int) -> str:
    """What is done with the value of a name after the statement that assigns it."""
    owner, end = script.scope_of(name).resolve(name.id), script.tree.end(script.tree.statement(name))
    reads = [n for n in script.reads(name.id, owner) if script.tree.start(n) > end] if owner else []
    return _all_of(_use(script, one, far) for one in reads)


def _all_of(uses: Iterable[str]) -> str:
    found = set(uses)
    return next((word for word in (_WORKED_WITH, _SHOWN) if word in found), _STORED)


def _name_of(script: ScriptModel, call: ast.Call, place: int | None) -> ast.Name | None:
    """The name that a call's value, or the part of it at a place, is assigned to."""
    stmt = script.tree.parent(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    if place is not None:
        target = target.elts[place] if isinstance(target, ast.Tuple) and place < len(target.elts) else None
    return target if isinstance(target, ast.Name) else None
