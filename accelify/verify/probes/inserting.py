"""Probes in the user's source: at some places of a module, in memory, calls that show what is evaluated there.

`f(a, k=b)` becomes `p(7, "", f, False)(p(7, "0", a, False), k=p(7, "k", b, True))`: each part is evaluated once, in
its order, and the call is made from the frame that made it before. Of `x.f(a)` the receiver is shown too. Statements
get one call before them. `__accelify_probe__` is the name of `p`, and gives its third argument back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelify.verify.observe.instrumented import DECIDED, PASSED, is_compiled

PROBE = "__accelify_probe__"
MOST = 100
"""Times at one place of which the values are written."""
Row = Sequence[Any]
"""Line and column of a place, from 1, the number of its probe, and what is shown there: one of the next three."""
ARGUMENTS, OUTCOME, EXITS = "arguments", "outcome", "exits"
"""What a call gets, what it returns, where a loop is left by `break` or `return`."""
CALLED, RECEIVER, RESULT, REACHED = "", ".", "=", "#"
"""What is shown beside arguments: the function, what its method belongs to, what it returned, nothing."""


def insert(tree: ast.Module, rows: Sequence[Row]) -> None:
    """Put probes into a module's tree."""
    chosen: dict[int, list[Row]] = {}
    for node, row in places(tree, rows):
        chosen.setdefault(id(node), []).append(row)
    if chosen:
        _Inserter(chosen).visit(tree)


def places(tree: ast.Module, rows: Sequence[Row]) -> list[tuple[ast.AST, Row]]:
    """The node of each row that has one.

    That is the longest call that begins there, else the statement; for EXITS the loop whose condition or iterable does.
    """
    wanted = {(row[0], row[1] - 1) for row in rows}
    found: dict[tuple[int, int], ast.AST] = {}
    loops: dict[tuple[int, int], ast.AST] = {}
    for node in _outside_of_compiled(tree):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            loops[_place(node.test if isinstance(node, ast.While) else node.iter)] = node
        place = _place(node)
        if place in wanted and _can_be_shown(node):
            known = found.get(place)
            if known is None or (isinstance(node, ast.Call) and not isinstance(known, ast.Call)):
                found[place] = node
    pairs = [((loops if row[3] == EXITS else found).get((row[0], row[1] - 1)), row) for row in rows]
    return [(node, row) for node, row in pairs if node is not None]


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _outside_of_compiled(node: ast.AST) -> Iterable[ast.AST]:
    """Every node below, outer ones first, without functions of which a decorator reads the text."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and is_compiled(child)):
            yield child
            yield from _outside_of_compiled(child)


def _can_be_shown(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in (DECIDED, PASSED, "super"))
    return isinstance(node, ast.stmt) and not isinstance(node, ast.Expr)


class _Inserter(ast.NodeTransformer):
    def __init__(self, chosen: Mapping[int, Sequence[Row]]) -> None:
        self.chosen = chosen

    def visit(self, node: ast.AST) -> Any:
        rows = self.chosen.get(id(node), ())
        changed: Any = self.generic_visit(node)
        # What a call returns is looked at around what it gets.
        for _, _, number, shown in sorted(rows, key=lambda row: bool(row[3] == OUTCOME)):
            if shown == EXITS:
                changed = _Leaving(number).generic_visit(changed)
            elif shown == OUTCOME:
                changed = _shown(number, RESULT, changed, True, changed)
            elif isinstance(changed, ast.Call):
                changed = _with_arguments(changed, number)
            else:
                return [_reached(number, changed), changed]
        return changed


class _Leaving(ast.NodeTransformer):
    """Marks where a loop is left; it is called on the loop's parts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inner = 0

    def visit_Break(self, node: ast.Break) -> Any:
        return node if self.inner else [_reached(self.number, node), node]

    def visit_Return(self, node: ast.Return) -> Any:
        return [_reached(self.number, node), node]

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.While) -> Any:
        self.inner += 1
        self.generic_visit(node)
        self.inner -= 1
        return node

    visit_AsyncFor = visit_While = visit_For  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Any:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815


def _reached(number: int, at: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Expr(_shown(number, REACHED, ast.Constant(None), True, at)), at)


def _with_arguments(call: ast.Call, number: int) -> ast.Call:
    many = len(call.args) + len(call.keywords)
    function = call.func
    if isinstance(function, ast.Attribute):
        function.value = _shown(number, RECEIVER, function.value, not many, function.value)
    else:
        call.func = _shown(number, CALLED, function, not many, function)
    for position, argument in enumerate(call.args):
        last = position == many - 1
        if isinstance(argument, ast.Starred):
            argument.value = _shown(number, str(position), argument.value, last, argument.value)
        else:
            call.args[position] = _shown(number, str(position), argument, last, argument)
    for position, keyword in enumerate(call.keywords, len(call.args)):
        keyword.value = _shown(
            number, keyword.arg or "**", keyword.value, position == many - 1, keyword.value
        )
    return call


def _shown(number: int, part: str, value: ast.expr, last: bool, at: ast.AST) -> ast.Call:
    words = [ast.Constant(number), ast.Constant(part), value, ast.Constant(last)]
    call = ast.Call(ast.Name(PROBE, ast.Load()), words, [])
    for new in (call, call.func, *(word for word in words if word is not value)):
        ast.copy_location(new, at)
    if value.__dict__.get("lineno") is None:
        ast.copy_location(value, at)
    return call
