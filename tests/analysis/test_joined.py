"""Several modules as one tree."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.joined import JoinedTree
from accelify.analysis.syntax import Tree
from accelify.writer.edits import replace
from accelify.writer.writing import apply

ONE, TWO = "é = f(1)", "# two\n\ng(2)\n"


def test_places_and_edits() -> None:
    joined = JoinedTree([Tree(ONE, "one.py"), Tree(TWO, "two.py")])
    calls = list(joined.nodes(ast.Call))
    assert [joined.locate(joined.start(c)) for c in calls] == [("one.py", 1, 5), ("two.py", 3, 1)]
    assert [joined.segment(c) for c in calls] == ["f(1)", "g(2)"]
    data = apply(joined, [replace(c.func, "ü") for c in calls])
    assert [part.decode() for part in joined.cut(data)] == ["é = ü(1)", "# two\n\nü(2)\n"]


def test_untouched_modules_are_the_same() -> None:
    for texts in ((ONE, TWO), (TWO, ONE, TWO), ("", TWO)):
        joined = JoinedTree([Tree(t) for t in texts])
        assert [p.decode() for p in joined.cut(joined.data)] == list(texts)


def test_every_module_gets_its_own_line_ends_back() -> None:
    texts = ("a\nb\n", "c\r\n\r\nd", "e\r\n")
    joined = JoinedTree([Tree(text) for text in texts])
    assert b"\r" not in joined.data
    assert [p.decode() for p in joined.cut(joined.data)] == list(texts)


def test_mixed_line_ends_cannot_be_put_back() -> None:
    with pytest.raises(ValueError, match="line ends"):
        JoinedTree([Tree("a\nb\n"), Tree("a\r\nb\nc\r\n")])
