"""Which statements can have bound a name where it is read."""

from __future__ import annotations

import ast
import textwrap

import pytest

from accelify.analysis.statements.bindings import Bindings
from accelify.analysis.syntax import Tree


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\nx = 2\nuse(x)", [2]),
        ("x = 1\nif a:\n    x = 2\nuse(x)", [1, 3]),
        ("x = 1\nif a:\n    x = 2\n    x = 3\nelse:\n    x = 4\n    if b:\n        x = 5\nuse(x)", [4, 6, 8]),
        ("if a:\n    x = 1\n    if b:\n        x = 2\n    else:\n        x = 3\nuse(x)", [4, 6]),
        ("if a:\n    x = 1\n    for _ in b:\n        x = 2\n        x = 3\nuse(x)", [2, 4, 5]),
        ("x = 0\nif a:\n    x = 1\n    raise b\nuse(x)", [1]),
    ],
)
def test_what_a_branch_binds_over_is_not_read_behind_it(text: str, lines: list[int]) -> None:
    tree = Tree(textwrap.dedent(text))
    (read,) = [n for n in tree.nodes(ast.Name) if n.id == "x" and isinstance(n.ctx, ast.Load)]
    assert sorted(stmt.lineno for stmt in Bindings(tree).of(read) if stmt is not None) == lines
