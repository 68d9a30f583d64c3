"""What the methods of an object store of their arguments: `board.update(loss)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import names_in, target_names

_PUTTING = frozenset({"append", "extend", "update", "add", "insert", "setdefault"})
_ROUNDS = 3


def filled(method: Scope, given: set[str]) -> Iterator[str]:
    """The attributes in which a method stores some of its parameters, or what it makes of them."""
    known, own = _made_of(method, lambda node: bool(names_in(node) & given)) | given, method.self_name()
    for node in method.nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.AugAssign) and names_in(node.value) & known:
            targets = [node.target]
        elif isinstance(node, ast.Assign) and names_in(node.value) & known:
            targets = node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _PUTTING and any(names_in(a) & known for a in node.args):
                targets = [node.func.value]
        for target in targets:
            while isinstance(target, ast.Subscript) or _is_found(target):
                target = target.value if isinstance(target, ast.Subscript) else target.func.value  # type: ignore
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                if target.value.id == own:
                    yield target.attr


def _is_found(node: ast.expr) -> bool:
    """`self.meters.setdefault(name, Meter())`: what a table holds."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("setdefault", "get")
    )


def _made_of(method: Scope, begins: Callable[[ast.AST], bool]) -> set[str]:
    """The variables of a method that are made of something."""
    known: set[str] = set()
    for _ in range(_ROUNDS):
        before = len(known)
        for node in method.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                if begins(node.value) or names_in(node.value) & known:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    known |= {n for t in targets if not isinstance(t, ast.Attribute) for n in target_names(t)}
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                if begins(node.iter) or names_in(node.iter) & known:
                    known |= set(target_names(node.target))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _PUTTING:
                given = node.func.value  # type: ignore[attr-defined]
                if isinstance(given, ast.Name) and any(begins(a) or names_in(a) & known for a in node.args):
                    known.add(given.id)
        if len(known) == before:
            break
    return known
