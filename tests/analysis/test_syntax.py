"""Exact places in a script."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.syntax import Tree, call_argument, dotted, stores_in, target_names

TEXT = "é = 'ü'; f(ß,\n  b)\nif é:\n\tg(1)  # c\nelif b:\n\t@d\n\tdef h(): pass\n"


def test_segments_are_what_stands_there() -> None:
    tree = Tree(TEXT)
    assert [tree.segment(c) for c in tree.nodes(ast.Call)] == ["f(ß,\n  b)", "g(1)"]
    (function,) = tree.nodes(ast.FunctionDef)
    assert tree.segment(function) == "@d\n\tdef h(): pass"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_positions_count_characters(newline: str) -> None:
    tree = Tree(TEXT.replace("\n", newline))
    call = next(iter(tree.nodes(ast.Call)))
    assert tree.position(tree.start(call)) == (1, 10)
    assert tree.position(tree.end(call)) == (2, 5)
    assert tree.newline == newline
    assert tree.locate(tree.start(call)) == ("<stdin>", 1, 10)


def test_lines_and_blocks() -> None:
    tree = Tree(TEXT)
    first, second, branch = tree.module.body
    assert tree.own_line(first)
    assert not tree.own_line(second)
    assert not tree.ends_line(first)
    assert tree.ends_line(second)
    assert isinstance(branch, ast.If)
    assert tree.ends_line(branch.body[0]), "a comment may follow"
    assert tree.is_elif(branch.orelse[0])
    assert not tree.is_elif(branch)
    assert tree.indent(branch.body[0]) == tree.indent_unit() == "\t"
    assert tree.block_of(branch.body[0])[1] == "body"
    assert tree.statement(next(iter(tree.nodes(ast.Constant)))) is first


def test_calls() -> None:
    tree = Tree("f(a, *b, c, k=1)")
    (call,) = tree.nodes(ast.Call)
    assert dotted(call_argument(call, 0, "x")) == "a"
    assert call_argument(call, 2, "x") is None, "hidden behind the star"
    assert call_argument(call, 9, "k") is call.keywords[0].value


def test_names() -> None:
    assign = ast.parse("(a, [b, *c]), d.e = x").body[0]
    assert isinstance(assign, ast.Assign)
    assert target_names(assign.targets[0]) == ["a", "b", "c"]
    assert dotted(ast.parse("a.b().c", mode="eval").body) is None


def test_names_are_found_where_a_statement_binds_them() -> None:
    loop = Tree("x = 0\nfor i, x in f(y):\n    del z\n    w = lambda v: x\n").module.body[1]
    found = stores_in(loop)
    assert {name: [node.lineno for node in nodes] for name, nodes in found.items()} == {
        "i": [2], "x": [2], "z": [3], "w": [4],
    }  # fmt: skip


def test_what_a_text_mentions_is_asked_of_all_of_it() -> None:
    tree = Tree(TEXT)
    for _ in range(2):
        assert tree.mentions("def h")
        assert not tree.mentions("def g")
