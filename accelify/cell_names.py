"""Names of a notebook that have to stay global when its later cells become a function."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Sequence

_CALLED = ("train", "run_training", "train_on_all", "run_on_all_processes")
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def global_names(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The names that a function made of some cells has to declare `global`, in the order in which they are bound.

    Those that the cells bind and that functions of the cells before read, that a function among them declares global
    itself, or that they read first and then bind again (`model = accelerator.prepare(model)`).

    Args:
        before: the cells that stay as they are.
        after: those that become the function.
    """
    first, second = "\n".join(before), "\n".join(after)
    try:
        retained, moved = (
            symtable.symtable(first, "before", "exec"),
            symtable.symtable(second, "after", "exec"),
        )
        order = _Order(ast.parse(second))
    except (SyntaxError, ValueError, RecursionError):
        return []
    wanted = {s.get_name() for t in _functions(retained) for s in t.get_symbols() if s.is_global()}
    wanted |= {s.get_name() for t in _functions(moved) for s in t.get_symbols() if s.is_declared_global()}
    known = {s.get_name() for s in retained.get_symbols() if s.is_assigned() or s.is_imported()}
    return [name for name in order.bound if name in wanted or (name in known and name in order.read_first)]


def name_of_new_function(cells: Sequence[str]) -> str:
    """A name for the function that cells are put into, which no cell has for anything yet."""
    try:
        table = symtable.symtable("\n".join(cells), "cells", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return _CALLED[0]
    taken = {s.get_name() for t in (table, *_tables(table)) for s in t.get_symbols()}
    return next((name for name in _CALLED if name not in taken), _CALLED[-1])


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _tables(child)


def _functions(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """The functions under a table, those in classes and in other functions too."""
    return (one for one in _tables(table) if one.get_type() == "function")


class _Order(ast.NodeVisitor):
    """Which names a module's statements bind, and which of them they read before, in the order in which they run."""

    def __init__(self, module: ast.Module) -> None:
        self.bound: dict[str, None] = {}
        self.read_first: set[str] = set()
        self.visit(module)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.setdefault(node.id)
        elif node.id not in self.bound:
            self.read_first.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        for part in [node.value, *node.targets]:
            self.visit(part)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.bound:
            self.read_first.add(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        for part in [node.iter, node.target, *node.body, *node.orelse]:
            self.visit(part)

    def visit_alias(self, node: ast.alias) -> None:
        self.bound.setdefault(node.asname or node.name.split(".")[0])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.setdefault(node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.setdefault(node.name)

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, _SCOPES):
            super().generic_visit(node)
            return
        # What a comprehension or a lambda binds is local to it.
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        own = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        own |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        self.read_first |= {n.id for n in names} - own - set(self.bound)
