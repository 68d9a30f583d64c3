"""Folders that are numbered by what is beside them: `number = 1 + len(os.listdir(runs))`, `runs/{number}`.

Also by methods of a path: `max(int(run.name) for run in runs.iterdir()) + 1`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelify.analysis.files.effect_sites import LISTING
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, calls_in, dotted, target_names, walk

Qualname = Callable[[ast.expr], str | None]
# Methods of a path, and those that put something into a list or set.
_LISTING = frozenset({"iterdir", "glob", "rglob"})
_FILLING = frozenset({"append", "add", "insert", "extend", "update"})


def is_numbered(scope: Scope, path: ast.expr, qualname: Qualname) -> ast.Call | None:
    """The call that lists the folder around a new one, by whose number of entries that has its name.

    Args:
        scope: the function that makes the folder.
        path: of the folder that is made.
        qualname: the name of a library's function that an expression of the function is.
    """
    for call in scope.calls:
        if call.lineno > path.lineno:
            continue
        if _folder(call) is not None and ((qualname(call.func) or "").startswith(LISTING) or _is_asked(call)):
            numbers = _numbers(scope, call)
            if _holds(path, numbers, call) and _lies_in(scope, path, call):
                return call
    return None


def gives_numbered(scope: Scope, made: list[ast.expr], qualname: Qualname) -> ast.Call | None:
    """The same call where a function returns where it has made such a folder.

    Args:
        scope: the function.
        made: the paths of the folders that it makes.
        qualname: the name of a library's function that an expression of it is.
    """
    returned = [n.value for n in scope.of_type(ast.Return) if n.value is not None]
    for path in made if returned else ():
        call = is_numbered(scope, path, qualname)
        if call is not None and any(_holds(value, _numbers(scope, call), call) for value in returned):
            return call
    return None


def _is_asked(call: ast.Call) -> bool:
    """`path.iterdir()`, `path.glob("run_*")`, which only paths have."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _LISTING
        and (call.func.attr == "iterdir" or dotted(call.func.value) != "glob")
    )


def _folder(listing: ast.Call) -> ast.expr | None:
    """The folder that a call lists."""
    if _is_asked(listing):
        return listing.func.value  # type: ignore[attr-defined,no-any-return]
    return listing.args[0] if listing.args else None


def _numbers(scope: Scope, listing: ast.Call) -> set[str]:
    """The variables of a function that hold a number of what a call lists, or text with it."""
    listed: set[str] = set()
    found: set[str] = set()
    before = -1
    while len(listed) + len(found) > before:
        before = len(listed) + len(found)
        for node in scope.nodes:
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                if _reads(node.iter, listed, listing):
                    listed.update(target_names(node.target))
                    # A count of those that some condition is true for.
                    counts = [n for n in walk(node) if isinstance(n, ast.AugAssign)]
                    found.update(name for n in counts if (name := dotted(n.target)) and name not in listed)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _FILLING:
                if any(_reads(given, listed, listing) for given in node.args):
                    listed.update(_bound(node.func.value))  # type: ignore[attr-defined]
            elif isinstance(node, ast.Assign):
                names = {name for target in node.targets for name in _bound(target)}
                if _counts(node.value, listed, listing) or _named(node.value) & found:
                    found |= names
                elif _reads(node.value, listed, listing):
                    listed |= names
            elif isinstance(node, ast.AugAssign) and (name := dotted(node.target)) is not None:
                if (isinstance(node.op, ast.Add) and name in listed) or _named(node.value) & found:
                    found.add(name)
    return found


def _counts(value: ast.expr, listed: set[str], listing: ast.Call) -> bool:
    """Whether an expression holds the length of what is listed, or one more than a number that was read off it."""
    return any(
        (
            isinstance(n, ast.Call)
            and dotted(n.func) == "len"
            and any(_reads(a, listed, listing) for a in n.args)
        )
        or (isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add) and _is_one_more(n, listed, listing))
        for n in walk(value)
    )


def _is_one_more(sum_: ast.BinOp, listed: set[str], listing: ast.Call) -> bool:
    sides = (sum_.left, sum_.right)
    number = any(isinstance(s, ast.Constant) and isinstance(s.value, int) for s in sides)
    return number and any(_reads(s, listed, listing) for s in sides)


def _reads(value: Node, listed: set[str], listing: ast.Call) -> bool:
    return any(n is listing for n in walk(value)) or bool(_named(value) & listed)


def _holds(value: ast.expr, numbers: set[str], listing: ast.Call) -> bool:
    return bool(_named(value) & numbers) or _counts(value, set(), listing)


def _lies_in(scope: Scope, path: ast.expr, listing: ast.Call) -> bool:
    """Whether a path is made with the one that is listed: what counts classes of the data names no run."""
    names, before = _named(path), -1
    values: list[ast.expr] = [path]
    while len(names) > before:
        before = len(names)
        values = [path]
        for node in scope.nodes:
            if isinstance(node, ast.Assign) and any(names & set(_bound(t)) for t in node.targets):
                values.append(node.value)
                names |= _named(node.value)
    inside = set(walk(listing))
    beside = [n for value in values for n in walk(value) if n not in inside]
    listed = _folder(listing)
    assert listed is not None
    functions = {name for c in calls_in(listed) for name in _named(c.func)}
    words = _named(listed) - functions
    words = {word for word in words if not any(other.startswith(f"{word}.") for other in words)}
    if words:
        return any(isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) in words for n in beside)
    texts = {text.partition("*")[0] for text in _texts(walk(listed))} - {""}
    return any(text.startswith(one) for text in _texts(beside) for one in texts)


def _named(node: Node) -> set[str]:
    """The variables in some code, attributes as they are written: `self.path`."""
    return {name for n in walk(node) if (name := dotted(n)) is not None}


def _bound(target: ast.expr) -> list[str]:
    name = dotted(target)
    return [name] if name is not None else target_names(target)


def _texts(nodes: list[Node]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
