"""What a file calls and derives its classes from, by the names that its imports give: `tools.train`, not `model.train`.

Only the words of one file are looked at, so that it is cheap for all files of a project.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from accelify.analysis.syntax import children, walk

# Marks what is not from an import: names that the file defines.
OWN = ":"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class CalledNames:
    """The dotted names that a file calls, written from the module that its imports take them from.

    `classes` are those that it defines: their names, their bases, and their methods. `defined` are the names that its
    statements bind at the top.
    """

    calls: set[str] = field(default_factory=set)
    classes: list[tuple[str, set[str], set[str]]] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)


def called_names(data: bytes) -> CalledNames | None:
    """What a file calls; None where it does not parse: other versions of Python, syntax of notebooks."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
        return _Reader(tree).found
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self.found = CalledNames()
        self.imported: dict[str, set[str]] = {}
        self.stars: list[str] = []
        self.hidden: list[set[str]] = []
        for node in walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    target = alias.name if alias.asname else root
                    self.imported.setdefault(alias.asname or root, set()).add(target)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        for stmt in tree.body:
            self._define(stmt)
        self._read(tree)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self.imported.setdefault(alias.asname or alias.name, set()).add(_join(module, alias.name))

    def _define(self, stmt: ast.stmt) -> None:
        """Note what a statement at the top defines; one inside of `try` or `if` is one of two."""
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.found.defined.add(stmt.name)
        elif isinstance(stmt, ast.Assign) and all(isinstance(t, ast.Name) for t in stmt.targets):
            names = {t.id for t in stmt.targets if isinstance(t, ast.Name)}
            same = {one for one in self._names(stmt.value) if not one.startswith(OWN)}
            for name in names if same else ():
                self.imported.setdefault(name, set()).update(same)
            self.found.defined |= set() if same else names

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, _FUNCTIONS):
            self._function(node)
            return
        if isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.Call):
            self.found.calls.update(self._names(node.func))
        for child in children(node):
            self._read(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        a = node.args
        names = {arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]}
        names |= {arg.arg for arg in (a.vararg, a.kwarg) if arg is not None}
        body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
        names |= {name for one in body for name in _stored(one)}
        outside = {n for one in body if isinstance(one, (ast.Global, ast.Nonlocal)) for n in one.names}
        for outer in [*getattr(node, "decorator_list", []), *a.defaults, *a.kw_defaults]:
            if outer is not None:
                self._read(outer)
        self.hidden.append(names - outside)
        for one in body:
            self._read(one)
        self.hidden.pop()

    def _class(self, node: ast.ClassDef) -> None:
        """Note a class with what it is derived from."""
        bases = {name for base in node.bases for name in self._names(base)}
        methods = {s.name for s in node.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))}
        self.found.classes.append((node.name, bases, methods))

    def _names(self, node: ast.expr) -> Iterator[str]:
        """What a dotted name can represent: what an import brings, or the file itself."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or any(node.id in names for names in self.hidden):
            return
        if node.id not in self.found.defined:
            for target in sorted(self.imported.get(node.id, ())):
                yield ".".join([target, *parts])
            if node.id in self.imported:
                return
            for module in self.stars:
                yield _join(module, ".".join([node.id, *parts]))
        yield OWN + ".".join([node.id, *parts])


def _join(module: str, name: str) -> str:
    return f"{module}{name}" if module.endswith(".") else f"{module}.{name}"


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that a statement of a function binds, without those of functions and classes inside of it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, (*_FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in children(node):
        yield from _stored(child)
