"""Calls that are run with what stands around them are not run again by themselves, and nothing is lost by that."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.interpretation.evaluated_around import is_evaluated_around
from accelify.analysis.syntax import Tree


@pytest.mark.parametrize(
    ("code", "alone"),
    [
        ("x = f(g(1), h=i(2)).j(k())", set()),
        ("f(g())", {"f(g())"}),
        ("if f(x) > g(y): pass", {"f(x)", "g(y)"}),
        ("for x in f(g()): pass", set()),
        ("def f():\n    return g(h()) + i()", set()),
        ("super().__init__(f())", {"super()", "super().__init__(f())"}),
        ("getattr(module, name(x))(f())", {"getattr(module, name(x))(f())", "getattr(module, name(x))"}),
        ("x = f() if g() else h()", {"f()", "g()", "h()"}),
        ("x = {f(): g()}", {"f()", "g()"}),
        ("x = lambda: f()", {"f()"}),
        ("x += f()", set()),
    ],
)
def test_calls_by_themselves(code: str, alone: set[str]) -> None:
    tree = Tree(code)
    found = {tree.segment(call) for call in tree.nodes(ast.Call) if not is_evaluated_around(tree, call)}
    assert found == alone
