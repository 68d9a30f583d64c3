"""Models that store the configured batch size and make a state of that many samples: `self.hidden = zeros(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import knowledge as k
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, names_in, target_names, text_of, walk
from accelify.analysis.values import Class

_MAKERS = frozenset("zeros ones randn rand empty full new_zeros new_ones new_full new_empty".split())


def state_of_stored_size(classes: Iterable[Class]) -> tuple[Class, ast.Call, str] | None:
    """The class, and where it makes a state of a stored size, with that size as it is written.

    Args:
        classes: of models, with their bases.
    """
    for cls in classes:
        methods = [m for m in cls.scope.children.values() if m.kind == "function"]
        retained = (
            _stored(methods)
            if cls.module.tree.mentions(b"atch") or cls.module.tree.mentions(b".bs")
            else set()
        )
        for method in methods if retained else ():
            for node in method.nodes:
                if isinstance(node, ast.Assign) and any(_is_own(t) for t in _targets(node)):
                    for call in walk(node.value):
                        size = _size(call, retained, method) if isinstance(call, ast.Call) else None
                        if size is not None:
                            assert isinstance(call, ast.Call)
                            return cls, call, size
    return None


def _targets(stmt: ast.Assign) -> list[ast.expr]:
    return [e for t in stmt.targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _stored(methods: list[Scope]) -> set[str]:
    """`self.batch_size`, which is set once, to an argument of `__init__`."""
    found: dict[str, list[bool]] = {}
    for method in methods:
        given = {a.arg for a in method.parameters()} - {"self"}
        for node in method.nodes:
            for target in _targets(node) if isinstance(node, ast.Assign) else ():
                if _is_own(target) and k.BATCH_SIZE_NAME.search(getattr(target, "attr", "")):
                    names = names_in(node.value)  # type: ignore[attr-defined]
                    plain = not any(isinstance(n, ast.Call) for n in walk(node.value))  # type: ignore[attr-defined]
                    fits = method.name.endswith("__init__") and plain and bool(names & given)
                    found.setdefault(text_of(target), []).append(fits)
    return {name for name, fits in found.items() if fits == [True]}


def _size(call: ast.Call, retained: set[str], method: Scope) -> str | None:
    """The stored size among the dimensions of a tensor that a call makes."""
    if str(dotted(call.func) or getattr(call.func, "attr", "")).rsplit(".", 1)[-1] not in _MAKERS:
        return None
    for argument in call.args:
        for node in walk(argument):
            name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
            if name in retained:
                return name
            if isinstance(node, ast.Name):
                for stmt in method.nodes:
                    if isinstance(stmt, ast.Assign) and any(node.id in target_names(t) for t in stmt.targets):
                        if dotted(stmt.value) in retained:
                            return dotted(stmt.value)
    return None
