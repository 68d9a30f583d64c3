"""The places where code does something to the world, and which of them a call comes to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import is_constant, walk

FOLDERS, FILES, PICTURES, TERMINAL, DOWNLOADS = "folders", "files", "pictures", "terminal", "downloads"
LOGS = "logs"  # lines and figures added to what is open already

_NOTHING = (None, False, "")


@dataclass(frozen=True)
class Site:
    """One place that does something: of which kind, by what, where.

    `missing` where it looks first what is there; `asked` is the parameter that has to be given for it to happen.
    """

    kind: str
    name: str
    path: str
    line: int
    missing: bool = False
    asked: str = ""


def asks_first(module: Module, call: ast.Call) -> bool:
    """Whether something is made only where it does not exist."""
    for ancestor in module.tree.ancestors(call):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        # `exists(f) or makedirs(f)` asks in what stands before.
        test = ancestor.values[0] if isinstance(ancestor, ast.BoolOp) else getattr(ancestor, "test", None)
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.BoolOp)) and test is not None:
            words = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
            words |= {n.id for n in walk(test) if isinstance(n, ast.Name)}
            if words & {"exists", "isdir", "is_dir", "isfile"}:
                return True
        if isinstance(ancestor, ast.Try):
            return True
    return False


def asked_for(module: Module, scope: Scope, call: ast.Call) -> str:
    """The parameter without which a function does not come to a call: `path` of `if path is not None:`; or ""."""
    parameters = defaults_of(scope)
    child: ast.AST = call
    for ancestor in module.tree.ancestors(call) if parameters else ():
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, ast.If) and any(child is s for s in ancestor.body):
            for name in _needed(ancestor.test):
                if name in parameters and not _is_stored(scope, name):
                    return name
        child = ancestor
    return ""


def as_called(sites: list[Site], call: ast.Call, callee: Scope, scope: Scope) -> Iterator[Site]:
    """The sites of a function that one of its calls comes to, as they hold for the scope around that call."""
    given = defaults_of(callee) | {name: argument for argument, name in handed_to(call, callee)}
    starred = any(isinstance(a, ast.Starred) for a in call.args) or any(
        kw.arg is None for kw in call.keywords
    )
    for site in sites:
        argument = given.get(site.asked)
        if site.asked and not starred and is_constant(argument, *_NOTHING):
            continue
        named = argument.id if isinstance(argument, ast.Name) and site.asked else ""
        yield replace(site, asked=named if named in defaults_of(scope) else "")


def defaults_of(scope: Scope) -> dict[str, ast.expr | None]:
    """The parameters of a function, with what they hold where they are not given."""
    if isinstance(scope.node, (ast.Module, ast.ClassDef)):
        return {}
    a = scope.node.args
    placed = [*a.posonlyargs, *a.args]
    found: dict[str, ast.expr | None] = {arg.arg: None for arg in placed}
    found |= {arg.arg: d for arg, d in zip(reversed(placed), reversed(a.defaults), strict=False)}
    return found | {arg.arg: d for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)}


def _needed(test: ast.expr) -> Iterator[str]:
    """The names that must hold something for a test to be true."""
    if isinstance(test, ast.Name):
        yield test.id
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from _needed(part)
    elif isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
        if isinstance(test.ops[0], (ast.IsNot, ast.NotEq)) and is_constant(test.comparators[0], *_NOTHING):
            yield test.left.id


def _is_stored(scope: Scope, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in scope.nodes)
