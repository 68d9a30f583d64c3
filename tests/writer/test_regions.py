"""What is read by libcst of a file, and that all else stays as it is, byte for byte."""

from __future__ import annotations

import ast

import libcst as cst
import pytest

from accelify.analysis.joined import JoinedTree
from accelify.analysis.syntax import Tree
from accelify.writer.edits import Delete, Edit, InsertAfter, InsertBefore, PutUnder, replace
from accelify.writer.errors import EditError
from accelify.writer.writing import Written, apply

# A form feed, tabs, blanks at ends of lines, a continuation, a comment between arguments.
AROUND = "\x0cdef f(a, # one\n      b ): \n\treturn a \\\n  + b  \n\n\n"


def name(tree: Tree, text: str) -> ast.Name:
    return next(n for n in tree.nodes(ast.Name) if n.id == text)


def test_only_what_changes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    parse = cst.parse_module

    def noting(source: str) -> cst.Module:
        read.append(source)
        return parse(source)

    tree = Tree(f"{AROUND}x = y\n{AROUND}z = y\n")
    monkeypatch.setattr(cst, "parse_module", noting)
    assert apply(tree, []).decode() == tree.text
    assert read == []
    assert apply(tree, [replace(name(tree, "x"), "w")]).decode() == f"{AROUND}w = y\n{AROUND}z = y\n"
    assert read == ["\n\nx = y\n"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("final", [True, False])
def test_line_ends(newline: str, final: bool) -> None:
    def text(*lines: str) -> str:
        return newline.join(lines) + newline * final

    tree = Tree(text("if x:", "    a", "    b", "", "c"))
    a, b = tree.module.body[0].body  # type: ignore[attr-defined]
    edits: list[Edit] = [
        PutUnder(a, a, "with q:"), Delete(b), InsertAfter(tree.module.body[1], ("n",)),
        InsertBefore(tree.module.body[0], ("m",)),
    ]  # fmt: skip
    assert apply(tree, edits).decode() == text("m", "if x:", "    with q:", "        a", "", "c", "n")


def test_line_ends_of_several_kinds_in_one_statement_are_refused() -> None:
    tree = Tree("if x:\r    a\n    b\n")
    with pytest.raises(EditError, match="several kinds"):
        apply(tree, [replace(name(tree, "a"), "c")])


def test_modules_that_are_edited_together() -> None:
    joined = JoinedTree([Tree("a = 1\nb = 2"), Tree("c = 3\r\nd = 4\r\n")])
    data = apply(joined, [replace(name(joined, "b"), "x"), replace(name(joined, "c"), "y")])
    assert joined.cut(data) == [b"a = 1\nx = 2", b"y = 3\r\nd = 4\r\n"]


def test_a_statement_that_goes_between_others() -> None:
    tree = Tree("import os\n\n\nx = 1\n\n\ndef f():\n    pass\n")
    imported, x, _ = tree.module.body
    written = Written(tree, [InsertAfter(imported, ("import sys",)), Delete(x)])
    assert written.data == b"import os\nimport sys\n\n\n\ndef f():\n    pass\n"
    assert len(written.regions) == 1
