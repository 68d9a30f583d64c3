"""The edit verbs: what each does to the bytes around it, and that edits which cannot be made are refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelify.analysis.syntax import Tree
from accelify.writer import edits as verbs
from accelify.writer.edits import (
    AddArgument,
    Delete,
    Edit,
    InsertAfter,
    InsertBefore,
    PutUnder,
    Replace,
)
from accelify.writer.errors import EditError
from accelify.writer.writing import apply


def statement(tree: Tree, text: str) -> ast.stmt:
    """The statement whose source (without its decorators) starts with a text."""
    found = [
        n
        for n in ast.walk(tree.module)
        if isinstance(n, ast.stmt) and tree.segment(n).removeprefix("@d\n").startswith(text)
    ]
    assert len(found) == 1, f"{len(found)} statements start with {text}"
    return found[0]


def applied(text: str, make: Callable[[Tree], Edit | list[Edit] | list[Replace]]) -> str:
    """The text with one or more edits made; it has to be Python still."""
    tree = Tree(text)
    made = make(tree)
    result = apply(tree, made if isinstance(made, list) else [made]).decode("utf-8")
    compile(result, "edited.py", "exec", dont_inherit=True)
    return result


def first_call(tree: Tree) -> ast.Call:
    return next(iter(tree.nodes(ast.Call)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = x.cuda()", "y = x"),
        ("y = x.cuda()\n", "y = x\n"),
        ("y = é.cuda() + ü\n", "y = é + ü\n"),
        ("x.cuda() # é\n", "x # é\n"),
        ("y = x .cuda()\n", "y = x\n"),
        ("y = x.cuda(\n)\n", "y = x\n"),
        ("y = -x.cuda()\n", "y = -x\n"),
        ("y = (\n    a\n    .cuda()\n)\n", "y = (\n    a\n)\n"),
        ("y = f(x)[0].cuda(1)\r\nz\r\n", "y = f(x)[0]\r\nz\r\n"),
        ("y = (a + b).cuda()\n", "y = (a + b)\n"),
        ("y = (\n    a if b else\n    c  # :)\n).cuda()\n", "y = (\n    a if b else\n    c  # :)\n)\n"),
        ("y = ((a)).cuda().b\n", "y = ((a)).b\n"),
    ],
)
def test_keep_receiver(before: str, after: str) -> None:
    def make(tree: Tree) -> Edit:
        call = next(c for c in tree.nodes(ast.Call) if getattr(c.func, "attr", "") == "cuda")
        return verbs.keep_receiver(call)

    assert applied(before, make) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = V(x)", "y = x"),
        ("y = V(x, volatile=True)\n", "y = x\n"),
        ("y = V(x, )\n", "y = x\n"),
        ("é = V(ü) + ß\n", "é = ü + ß\n"),
        ("y = V(a + b) * 2\n", "y = (a + b) * 2\n"),
        ("y = V((a + b)) * 2\n", "y = (a + b) * 2\n"),
        ("y = -V(a + b)\n", "y = -(a + b)\n"),
        ("y = 2 ** V(-a)\n", "y = 2 ** -a\n"),
        ("y = not V(a or b)\n", "y = not (a or b)\n"),
        ("y = V(a == b) == c\n", "y = (a == b) == c\n"),
        ("y = V(a if b else c) + 1\n", "y = (a if b else c) + 1\n"),
        ("y = V((a, b))\n", "y = (a, b)\n"),
        ("y = V(z for z in q)\n", "y = (z for z in q)\n"),
        ("y = V(a)[0]\n", "y = a[0]\n"),
        ("y = V(\n    x,\n    volatile=True,\n)\n", "y = x\n"),
        ("y = V(a +\n      b)\n", "y = (a +\n      b)\n"),
    ],
)
def test_keep_argument(before: str, after: str) -> None:
    def make(tree: Tree) -> list[Replace]:
        call = next(c for c in tree.nodes(ast.Call) if getattr(c.func, "id", "") == "V")
        return [verbs.replace(call, call.args[0])]

    assert applied(before, make) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=1)"),
        ("f( )", "f( k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f( a )", "f( a, k=1 )"),
        ("f((a))", "f((a), k=1)"),
        ("f((a, ) )", "f((a, ), k=1 )"),
        ("f(a,)", "f(a, k=1)"),
        ("f(a, b=2)", "f(a, b=2, k=1)"),
        ("f(*a)", "f(*a, k=1)"),
        ("f(**o)", "f(**o, k=1)"),
        ("f(é)\n", "f(é, k=1)\n"),
        ("f(\n    a,\n    b\n)\n", "f(\n    a,\n    b, k=1\n)\n"),
        ("f(\n    a,\n    b,\n)\n", "f(\n    a,\n    b,\n    k=1,\n)\n"),
        ("f(\n    a,  # one\n    b,  # two\n)\n", "f(\n    a,  # one\n    b, k=1,  # two\n)\n"),
        ("f(a # c\n  )\n", "f(a, k=1 # c\n  )\n"),
        ("f(\n    # nothing\n)\n", "f(\n    # nothing\nk=1)\n"),
    ],
)
def test_add_keyword(before: str, after: str) -> None:
    assert applied(before, lambda tree: AddArgument(first_call(tree), "k=1")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(acc)"),
        ("f(a)", "f(acc, a)"),
        ("f((a), b)", "f(acc, (a), b)"),
        ("f (a)", "f (acc, a)"),
        ("(f)(a)", "(f)(acc, a)"),
        ("f[0](a)", "f[0](acc, a)"),
        ("f(*a)", "f(acc, *a)"),
        ("f(**o)", "f(acc, **o)"),
        ("f(a=1)", "f(acc, a=1)"),
        ("f(\n    a,\n    b,\n)\n", "f(\n    acc,\n    a,\n    b,\n)\n"),
        ("f(\r\n    a,\r\n    b)\r\n", "f(\r\n    acc,\r\n    a,\r\n    b)\r\n"),
        ("f(\n\ta)\n", "f(\n\tacc,\n\ta)\n"),
        ("f(# c\n  a)\n", "f(acc, # c\n  a)\n"),
    ],
)
def test_add_first_argument(before: str, after: str) -> None:
    assert applied(before, lambda tree: AddArgument(first_call(tree), "acc", first=True)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f'{x.cuda(a)}'\n", "f'{x}'\n"),
        ("f'{a} {x.cuda(a)!r:>{w}}' 'b' f\"{c}\"\n", "f'{a} {x!r:>{w}}' 'b' f\"{c}\"\n"),
        ("f'{a:{x.cuda(a)}}'\n", "f'{a:{x}}'\n"),
    ],
)
def test_inside_an_fstring(before: str, after: str) -> None:
    assert applied(before, lambda tree: verbs.keep_receiver(first_call(tree))) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f'{f(a)}'\n", "f'{f(a, k=\"1\")}'\n"),
        ('f"{f(a)}"\n', "f\"{f(a, k='1')}\"\n"),
        ('f"""{f(a)}"""\n', 'f"""{f(a, k=\'1\')}"""\n'),
    ],
)
def test_strings_that_go_into_an_fstring_have_other_quotes(before: str, after: str) -> None:
    def make(tree: Tree) -> Edit:
        call = first_call(tree)
        return verbs.replace(call, "f(", call.args[0], ', k="1")')

    assert applied(before, make) == after
    assert applied(before, lambda tree: AddArgument(first_call(tree), 'k="1"')) == after


def test_a_bare_generator_gets_parentheses_before_a_second_argument() -> None:
    assert (
        applied("f(z for z in q)\n", lambda tree: AddArgument(first_call(tree), "k=1"))
        == "f((z for z in q), k=1)\n"
    )


@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        ("a\nb\nc\n", ["b"], "a\nc\n"),
        ("a\nb", ["b"], "a\n"),
        ("a", ["a"], "pass"),
        ("a  # why\nb\n", ["a"], "b\n"),
        ("a\r\nb\r\nc\r\n", ["b"], "a\r\nc\r\n"),
        ("a\n\nb\n\nc\n", ["b"], "a\n\nc\n"),
        ("a\nb\n\nc\n", ["b"], "a\n\nc\n"),
        ("for i in q:\n    a\n\n    b\n", ["a"], "for i in q:\n    b\n"),
        ("é = 1\nb\n", ["é"], "b\n"),
        ("a; b; c\n", ["a"], "b; c\n"),
        ("a; b; c\n", ["b"], "a; c\n"),
        ("a; b # c\n", ["b"], "a; pass # c\n"),
        ("a; b\nc\n", ["a", "b"], "c\n"),
        ("a; b;  # moves\r\nc\r\n", ["a", "b"], "c\r\n"),
        ("q\n\na; b\n\nc\n", ["a", "b"], "q\n\nc\n"),
        ("for i in q:\n    a; b\n    c\n", ["a", "b"], "for i in q:\n    c\n"),
        ("for i in q:\n    a; b\n", ["a", "b"], "for i in q:\n    pass\n"),
        ("if x: a; b\nc\n", ["a", "b"], "c\n"),
        ("if x: a\nb\n", ["a"], "b\n"),
        ("if x: a; b\n", ["a"], "if x: b\n"),
        ("if x:\n    a; b\n", ["a"], "if x:\n    b\n"),
        ("if x:\n\ta\n\tb\n", ["a"], "if x:\n\tb\n"),
        ("if x:\n    a\n    b\nc\n", ["a", "b"], "c\n"),
        ("if f():\n    a\n    b\n", ["a", "b"], "if f():\n    pass\n"),
        ("if x:\n    a\nelse:\n    b\n", ["a"], "if not x:\n    b\n"),
        ("if x:\n    a\nelse:\n    b\nc\n", ["a", "b"], "c\n"),
        ("if f():\n    a\nelse:\n    b\n", ["a"], "if f():\n    pass\nelse:\n    b\n"),
        ("if x:\n    a\nelif y:\n    b\n", ["a"], "if x:\n    pass\nelif y:\n    b\n"),
        ("if x:\n    a\nelse:\n    b\nc\n", ["b"], "if x:\n    a\nc\n"),
        ("if x:\n    q\nelif y:\n    a\n", ["a"], "if x:\n    q\n"),
        ("try:\n    a\nexcept E:\n    b\n", ["b"], "try:\n    a\nexcept E:\n    pass\n"),
        ("@d\ndef f():\n    pass\nx\n", ["def f"], "x\n"),
        ("a = '''\nq\n'''\nb\n", ["a"], "b\n"),
        ("'''\n''';a\n", ["'''"], "a\n"),
    ],
)
def test_delete_statement(before: str, gone: list[str], after: str) -> None:
    assert applied(before, lambda tree: [Delete(statement(tree, g)) for g in gone]) == after


def test_a_block_emptied_but_filled_needs_no_pass() -> None:
    text = "if x:\n    a\n    b\n"

    def make(tree: Tree, line: str) -> list[Edit]:
        a, b = statement(tree, "a"), statement(tree, "b")
        return [Delete(a), Delete(b), InsertBefore(a, (line,))]

    assert applied(text, lambda tree: make(tree, "n()")) == "if x:\n    n()\n"
    assert applied(text, lambda tree: make(tree, "# n")) == "if x:\n    # n\n    pass\n"


@pytest.mark.parametrize(
    ("text", "at", "before", "after"),
    [
        ("a\nb\n", "b", "a\nn()\nb\n", "a\nb\nn()\n"),
        ("a\nb", "b", "a\nn()\nb", "a\nb\nn()"),
        ("a\r\nb\r\n", "a", "n()\r\na\r\nb\r\n", "a\r\nn()\r\nb\r\n"),
        ("a\n\n\nb\n", "b", "a\n\n\nn()\nb\n", "a\n\n\nb\nn()\n"),
        ("a # c\n", "a", "n()\na # c\n", "a # c\nn()\n"),
        ("é = 1\nb\n", "b", "é = 1\nn()\nb\n", "é = 1\nb\nn()\n"),
        ("if x:\n\ta\n", "a", "if x:\n\tn()\n\ta\n", "if x:\n\ta\n\tn()\n"),
        ("a = (1,\n  2)\nb\n", "a", "n()\na = (1,\n  2)\nb\n", "a = (1,\n  2)\nn()\nb\n"),
        ("a\\\n  + b\n", "a", "n()\na\\\n  + b\n", "a\\\n  + b\nn()\n"),
        (
            "@d\ndef f():\n    pass\n",
            "def f",
            "n()\n@d\ndef f():\n    pass\n",
            "@d\ndef f():\n    pass\nn()\n",
        ),
        ("'''é\n'''\na\n", "a", "'''é\n'''\nn()\na\n", "'''é\n'''\na\nn()\n"),
        (
            "class A:\n  def f(self):\n    x\n",
            "x",
            "class A:\n  def f(self):\n    n()\n    x\n",
            "class A:\n  def f(self):\n    x\n    n()\n",
        ),
    ],
)
def test_insert(text: str, at: str, before: str, after: str) -> None:
    assert applied(text, lambda tree: InsertBefore(statement(tree, at), ("n()",))) == before
    assert applied(text, lambda tree: InsertAfter(statement(tree, at), ("n()",))) == after


def test_insert_beside_statements_that_share_a_line() -> None:
    assert applied("a; b\n", lambda tree: InsertBefore(statement(tree, "a"), ("n()",))) == "n()\na; b\n"
    assert applied("a; b\n", lambda tree: InsertAfter(statement(tree, "b"), ("n()",))) == "a; b\nn()\n"


def test_an_empty_line_is_put_in_without_indentation() -> None:
    text = "if x:\n    a\n"
    assert applied(text, lambda t: InsertAfter(statement(t, "a"), ("", "n()"))) == "if x:\n    a\n\n    n()\n"


def test_what_comes_after_a_statement_comes_before_what_precedes_the_next() -> None:
    def make(tree: Tree) -> list[Edit]:
        return [InsertBefore(statement(tree, "b"), ("m()",)), InsertAfter(statement(tree, "a"), ("n()",))]

    assert applied("a\nb\n", make) == "a\nn()\nm()\nb\n"


def test_order_decides_at_the_same_place() -> None:
    def make(tree: Tree) -> list[Edit]:
        a = statement(tree, "a")
        return [InsertBefore(a, ("second()",), 2), InsertBefore(a, ("first()",), 1)]

    assert applied("a\n", make) == "first()\nsecond()\na\n"


@pytest.mark.parametrize(
    ("text", "first", "last", "after"),
    [
        ("a\nb\nc\n", "a", "b", "with c:\n    a\n    b\nc\n"),
        ("a\n\nb\n", "a", "b", "with c:\n    a\n\n    b\n"),
        ("a\r\n\r\nb\r\n", "a", "b", "with c:\r\n    a\r\n\r\n    b\r\n"),
        ("a", "a", "a", "with c:\n    a"),
        ("a; b\n", "a", "b", "with c:\n    a; b\n"),
        ("if x:\n  a\n", "a", "a", "if x:\n  with c:\n    a\n"),
        ("if x:\n\ta\n\tb\n", "a", "b", "if x:\n\twith c:\n\t\ta\n\t\tb\n"),
        ("f(a,\n  b)\n", "f", "f", "with c:\n    f(a,\n      b)\n"),
        ("# c\na\n# d\nb\n# e\n", "a", "b", "# c\nwith c:\n    a\n    # d\n    b\n# e\n"),
        ("@d\ndef f():\n    p\n", "def f", "def f", "with c:\n    @d\n    def f():\n        p\n"),
        (
            "if x:\n    a\nelif y:\n    b\n",
            "if x",
            "if x",
            "with c:\n    if x:\n        a\n    elif y:\n        b\n",
        ),
    ],
)
def test_indent(text: str, first: str, last: str, after: str) -> None:
    def make(tree: Tree) -> Edit:
        return PutUnder(statement(tree, first), statement(tree, last), "with c:")

    assert applied(text, make) == after


NESTED = "for x in y:\n    a\n    b\n    if c:\n        d\n"


@pytest.mark.parametrize(
    ("inner", "after"),
    [
        (("b", "b"), "    with q:\n        a\n        if p:\n            b\n        if c:\n            d\n"),
        (
            ("a", "b"),
            "    with q:\n        if p:\n            a\n            b\n        if c:\n            d\n",
        ),
        (
            ("d", "d"),
            "    with q:\n        a\n        b\n        if c:\n            if p:\n                d\n",
        ),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_header_within_what_gets_one(inner: tuple[str, str], after: str, turned: bool) -> None:
    def make(tree: Tree) -> list[Edit]:
        outer = PutUnder(statement(tree, "a"), statement(tree, "if c"), "with q:")
        within = PutUnder(statement(tree, inner[0]), statement(tree, inner[1]), "if p:")
        return [within, outer] if turned else [outer, within]

    assert applied(NESTED, make) == f"for x in y:\n{after}"


def test_lines_within_what_gets_a_header_go_in_with_it() -> None:
    def make(tree: Tree) -> list[Edit]:
        a, b, d, last = (statement(tree, text) for text in ("a", "b", "d", "if c"))
        return [
            PutUnder(a, last, "with q:"),
            InsertBefore(a, ("out()",)),
            InsertAfter(last, ("behind()",)),
            InsertBefore(b, ("n()",)),
            InsertAfter(d, ("m()",)),
        ]

    assert applied(NESTED, make) == (
        "for x in y:\n    out()\n    with q:\n        a\n        n()\n        b\n        if c:\n            d\n"
        "            m()\n    behind()\n"
    )


@pytest.mark.parametrize(
    ("text", "first", "last", "after"),
    [
        ("if x: f()\n", "f", "f", "if x: main and f()\n"),
        ("if x: f(); g()\n", "f", "g", "if x: main and f(); main and g()\n"),
        ("a; f()\n", "f", "f", "a; main and f()\n"),
        ("if x: f() or g()\n", "f", "f", "if x: main and (f() or g())\n"),
        ("if x: (f())\n", "(f", "(f", "if x: main and (f())\n"),
    ],
)
def test_a_call_that_no_line_can_stand_above(text: str, first: str, last: str, after: str) -> None:
    def make(tree: Tree) -> Edit:
        return PutUnder(statement(tree, first), statement(tree, last), "if main:")

    assert applied(text, make) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = '''\nq'''\n", "with c:\n    x = '''\nq'''\n"),
        ("f'''\n{x}'''\n", "with c:\n    f'''\n{x}'''\n"),
        ('f(1, """a\n  b\n\n""",\n  2)\n', 'with c:\n    f(1, """a\n  b\n\n""",\n      2)\n'),
        ("x = 'a\\\nb'\n", "with c:\n    x = 'a\\\nb'\n"),
        ("f('é', b'''\n''', \n  g)\n", "with c:\n    f('é', b'''\n''', \n      g)\n"),
        ("if a:\n  x = '''é\nq'''\n  y\n", "with c:\n  if a:\n    x = '''é\nq'''\n    y\n"),
        ("f('a'\n  'b')\n", "with c:\n    f('a'\n      'b')\n"),
    ],
)
def test_what_a_string_goes_on_with_in_the_next_line_is_not_indented(text: str, after: str) -> None:
    """Every string stays what it was."""
    tree = Tree(text)
    stmt = tree.module.body[0]
    found = apply(tree, [PutUnder(stmt, stmt, "with c:")]).decode()
    assert found == after
    kept = [n.value for n in ast.walk(ast.parse(found)) if isinstance(n, ast.Constant)]
    assert kept == [n.value for n in ast.walk(tree.module) if isinstance(n, ast.Constant)]


def test_indent_and_what_happens_inside_it() -> None:
    text = "if x:\n    a\n    b\nc\n"

    def both(tree: Tree) -> tuple[ast.stmt, ast.stmt, PutUnder]:
        a, b = statement(tree, "a"), statement(tree, "b")
        return a, b, PutUnder(a, b, "with q:")

    def deleted(tree: Tree) -> list[Edit]:
        a, _, indent = both(tree)
        return [Delete(a), indent]

    def around(tree: Tree) -> list[Edit]:
        a, b, indent = both(tree)
        return [indent, InsertBefore(a, ("n()",)), InsertAfter(b, ("m()",))]

    def replaced(tree: Tree) -> list[Edit]:
        a, _, indent = both(tree)
        return [indent, verbs.replace(a, "d")]

    assert applied(text, deleted) == "if x:\n    with q:\n        b\nc\n"
    assert applied(text, around) == "if x:\n    n()\n    with q:\n        a\n        b\n    m()\nc\n"
    assert applied(text, replaced) == "if x:\n    with q:\n        d\n        b\nc\n"


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("if x: a\n", lambda t: InsertBefore(statement(t, "a"), ("# n",))),
        ("if x: a\n", lambda t: InsertAfter(statement(t, "a"), ("n(", ")"))),
        ("if x:\n    a\nelif y:\n    b\n", lambda t: InsertBefore(statement(t, "elif"), ("n()",))),
        ("if x:\n    a\nelif y:\n    b\n", lambda t: PutUnder(statement(t, "elif"), statement(t, "elif"), "with c:")),
        ("a; b\n", lambda t: PutUnder(statement(t, "a"), statement(t, "a"), "with c:")),
        ("a; b\n", lambda t: PutUnder(statement(t, "b"), statement(t, "b"), "with c:")),
    ],
)  # fmt: skip
def test_a_statement_without_a_line_of_its_own(text: str, make: Callable[[Tree], Edit]) -> None:
    tree = Tree(text)
    with pytest.raises(EditError, match="more than one statement"):
        apply(tree, [make(tree)])


def test_a_block_on_the_line_of_its_header_takes_a_statement_more() -> None:
    text = "if x: a; b  # c\nelse: d\n"
    assert applied(text, lambda t: InsertAfter(statement(t, "a"), ("n()",))) == text.replace("b", "b; n()")
    assert applied(text, lambda t: InsertBefore(statement(t, "b"), ("n()",))) == text.replace("a", "n(); a")
    assert applied(text, lambda t: InsertAfter(statement(t, "d"), ("n()",))) == text.replace("d", "d; n()")


def test_two_edits_of_one_node_collide() -> None:
    tree = Tree("f(a, b)\n")
    call = first_call(tree)
    for made in (
        [verbs.replace(call, "x"), verbs.replace(call, "y")],
        [verbs.replace(call, "x"), verbs.replace(call.args[0], "y")],
        [verbs.replace(call, call.args[0]), verbs.replace(call.args[1], "y")],
        [verbs.replace(call, "x"), AddArgument(call, "k=1")],
        [Delete(tree.module.body[0]), verbs.replace(call.args[0], "y")],
    ):
        for edits in (made, made[::-1]):
            with pytest.raises(EditError, match="two edits meet in line 1"):
                apply(tree, edits)


def test_edits_of_one_node_come_together() -> None:
    tree = Tree("f(a, b)\n")
    call = first_call(tree)
    a, b = call.args
    assert apply(tree, [verbs.replace(a, "x"), verbs.replace(a, "x")]) == b"f(x, b)\n"
    assert apply(tree, [verbs.replace(a, "x"), verbs.replace(call, call.func, "[", a, "]")]) == b"f[x]\n"
    assert apply(tree, [verbs.replace(a, "x"), verbs.replace(a, "g(", a, ")"), AddArgument(call, "k=1")]) == (
        b"f(g(x), b, k=1)\n"
    )
    around = [verbs.replace(b, b, ".cpu()", order=5), verbs.replace(b, "g(", b, ")", order=10)]
    for edits in (around, around[::-1]):
        assert apply(tree, edits) == b"f(a, g(b).cpu())\n"


def test_a_statement_is_not_deleted_and_rewritten() -> None:
    tree = Tree("a\nb\n")
    a = statement(tree, "a")
    with pytest.raises(EditError, match="two edits meet"):
        apply(tree, [Delete(a), verbs.replace(a, "c")])


def test_a_todo_stands_above_the_statement() -> None:
    mark = "# TODO(accelify ACC999): look"
    for text, after in [
        ("if x:\n    f(\n        é)\n", f"if x:\n    {mark}\n    f(\n        é)\n"),
        ("if x: f()\n", f"{mark}\nif x: f()\n"),
        ("if x:\n    a\nelif f():\n    b\n", f"{mark}\nif x:\n    a\nelif f():\n    b\n"),
    ]:
        assert applied(text, lambda tree: verbs.todo(tree, first_call(tree), "ACC999", "look")) == after


def test_a_todo_behind_a_semicolon_has_no_line() -> None:
    tree = Tree("a; f()\n")
    with pytest.raises(EditError, match="no separate line"):
        verbs.todo(tree, first_call(tree), "ACC999", "look")


WORDS = st.text(st.sampled_from("abc é中\t"), max_size=4)
LINES = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    lines=LINES,
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    final=st.booleans(),
    chosen=st.sets(st.integers(0, 7)),
)
def test_bytes_outside_of_edits_are_the_same(
    lines: list[tuple[str, str]], newline: str, final: bool, chosen: set[int]
) -> None:
    """Every chosen line's call loses its name; all other bytes, comments and line ends stay where they are."""
    text = newline.join(f"f{n}('{a}')  # {b}" for n, (a, b) in enumerate(lines)) + (newline if final else "")
    tree = Tree(text)
    calls = [c for c in tree.nodes(ast.Call) if int(c.func.id[1:]) in chosen]
    result = apply(tree, [verbs.replace(c.func, "é") for c in calls]).decode("utf-8")
    wanted = re.sub(r"f(\d)\('", lambda m: "é('" if int(m[1]) in chosen else m[0], text)
    assert result == wanted


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    lines=LINES,
    newline=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
    chosen=st.sets(st.integers(0, 7)),
)
def test_deleted_lines_take_nothing_else_with_them(
    lines: list[tuple[str, str]], newline: str, final: bool, chosen: set[int]
) -> None:
    rows = [f"f{n}('{a}')  # {b}" for n, (a, b) in enumerate(lines)]
    kept = [row for n, row in enumerate(rows) if n not in chosen]
    tree = Tree(newline.join(rows) + (newline if final else ""))
    result = apply(tree, [Delete(s) for n, s in enumerate(tree.module.body) if n in chosen])
    if kept:
        assert result.decode("utf-8").splitlines() == kept
    else:
        # The last one leaves a `pass` (with the comment that stood behind it).
        assert result.decode("utf-8").strip().startswith("pass")


def test_imports_from_other_modules_keep_their_lines() -> None:
    def make(tree: Tree) -> list[Edit]:
        lines = ("from here import b", "from there import a", "import here")
        return [InsertAfter(statement(tree, "import x"), (line,), order=i) for i, line in enumerate(lines)]

    assert applied("import x\ny = 1\n", make) == (
        "import x\nfrom here import b\nfrom there import a\nimport here\ny = 1\n"
    )


def test_imports_from_one_module_stand_in_one_line() -> None:
    def make(tree: Tree) -> list[Edit]:
        lines = ("from here import Made, Kept", "from here import b, Kept", "from here import a")
        return [InsertAfter(statement(tree, "import x"), (line,), order=i) for i, line in enumerate(lines)]

    assert applied("import x\ny = 1\n", make) == "import x\nfrom here import Kept, Made, a, b\ny = 1\n"
    assert applied("import x", make) == "import x\nfrom here import Kept, Made, a, b"


def test_imports_in_front_of_a_statement_keep_the_line_between() -> None:
    def make(tree: Tree) -> list[Edit]:
        place = statement(tree, "y = 1")
        return [
            InsertBefore(place, ("from here import Made", ""), order=-100),
            InsertBefore(place, ("from here import a",), order=-101),
        ]

    assert applied("y = 1\n", make) == "from here import Made, a\n\ny = 1\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("q\n\n# c\na\n", "q\n\nn()\n\n# c\na\n"),
        ("def f():\n    # c\n    a\n", "def f():\n    n()\n\n    # c\n    a\n"),
        ("if x:\n    # c\n    # d\n    a\n", "if x:\n    n()\n\n    # c\n    # d\n    a\n"),
        ("q\n# c\na\n", "q\nn()\n# c\na\n"),
        ("if x:\n    # more of the CPU\n    a\n", "if x:\n    n()\n\n    # more of the CPU\n    a\n"),
        ("def f():\n    a\n", "def f():\n    n()\n    a\n"),
        ("q\n\n# on the GPU\na.cuda()\n", "q\n\n# on the GPU\nn()\na.cuda()\n"),
    ],
)
def test_lines_go_above_the_comment_that_heads_a_paragraph_or_a_block(text: str, after: str) -> None:
    first = "a.cuda()" if "a.cuda()" in text else "a"
    assert applied(text, lambda t: InsertBefore(statement(t, first), ("n()",), above_comment=True)) == after


def below(text: str) -> Callable[[Tree], Edit]:
    return lambda tree: InsertAfter(statement(tree, text), ("z()",))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Empty lines with blanks in them do not belong to the block above them.
        ("for a in b:\n    c\n    \nd\n", "for a in b:\n    c\nz()\n    \nd\n"),
        (
            "for a in b:\n    if c:\n        d\n\n        \n",
            "for a in b:\n    if c:\n        d\nz()\n\n        \n",
        ),
        ("for a in b:\n    c\nelse:\n    d\n  \n", "for a in b:\n    c\nelse:\n    d\nz()\n  \n"),
        ("for a in b:\n    c\n\n# D\n    \nd\n", "for a in b:\n    c\nz()\n\n# D\n    \nd\n"),
        # A comment that is indented as far as the block does, with what is above it.
        ("for a in b:\n    c\n\n    # C\n    \nd\n", "for a in b:\n    c\n\n    # C\nz()\n    \nd\n"),
    ],
)
def test_lines_after_a_block_stay_after_what_is_put_in(before: str, after: str) -> None:
    assert applied(before, below("for")) == after


def test_comments_after_a_block_stay_when_it_goes() -> None:
    text = "a\nif b:\n    c\n\n# D\n    \nd\n"
    assert applied(text, lambda tree: Delete(statement(tree, "if"))) == "a\n\n# D\n    \nd\n"


def test_empty_lines_stay_as_they_are_under_a_header() -> None:
    text = "def f():\n    if a:\n        b\n        \n        c\n      \n    last\n"
    new = applied(text, lambda tree: PutUnder(statement(tree, "if"), statement(tree, "last"), "with e:"))
    assert (
        new
        == "def f():\n    with e:\n        if a:\n            b\n        \n            c\n      \n        last\n"
    )


def test_code_of_the_script_keeps_its_further_lines_where_they_are() -> None:
    text = "def f():\n    if a:\n        b = g(c,\n              d)\n    else:\n        b = 1\n"

    def merge(tree: Tree) -> Edit:
        return verbs.replace(statement(tree, "if"), tree.segment(statement(tree, "b = g")))

    assert applied(text, merge) == "def f():\n    b = g(c,\n              d)\n"


CHAIN = "if a:\n    b = 1\n    c()\nelif d:\n    b = 2\nelif e:\n    b = 3\nelse:\n    b = 4\n"


def test_an_elif_is_replaced_by_a_statement() -> None:
    new = applied(CHAIN, lambda tree: verbs.replace(statement(tree, "elif e"), "b = 5"))
    assert new == CHAIN.replace("elif e:\n    b = 3\nelse:\n    b = 4\n", "else:\n    b = 5\n")


@pytest.mark.parametrize(
    ("gone", "after"),
    [
        ((1, 2, 3, 4), "if a:\n    c()\n"),
        ((3, 4), "if a:\n    b = 1\n    c()\nelif d:\n    b = 2\n"),
        ((2, 4), CHAIN.replace("b = 2", "pass").replace("else:\n    b = 4\n", "")),
    ],
)
def test_the_last_branches_go_with_all_that_is_in_them(gone: tuple[int, ...], after: str) -> None:
    assert applied(CHAIN, lambda tree: [Delete(statement(tree, f"b = {n}")) for n in gone]) == after


def test_an_else_of_which_nothing_is_left_goes_whatever_is_done_before_it() -> None:
    def make(tree: Tree) -> list[Edit]:
        return [Delete(statement(tree, "b")), InsertAfter(statement(tree, "a"), ("n()",))]

    assert applied("if f():\n    a\nelse:\n    b\n", make) == "if f():\n    a\n    n()\n"


def test_inner_branches_that_go_take_outer_ones_with_them() -> None:
    text = "if x:\n    if y:\n        a\n    else:\n        b\nelif z:\n    c\nd\n"
    assert applied(text, lambda tree: [Delete(statement(tree, one)) for one in "abc"]) == "d\n"


def test_statements_of_one_line_get_one_header() -> None:
    def make(tree: Tree) -> list[Edit]:
        return [PutUnder(statement(tree, one), statement(tree, one), "if m:") for one in "abc"]

    assert applied("a; b\nc\n", make) == "if m:\n    a; b\n    c\n"


def test_parts_of_a_keyword_are_nodes() -> None:
    def make(tree: Tree) -> list[Edit]:
        call = first_call(tree)
        value = call.keywords[0].value
        return [verbs.replace(call.keywords[0], "n=", value), verbs.replace(value, "(", value, ").cpu()")]

    assert applied("f(a, m = b + c, *d)\n", make) == "f(a, n=(b + c).cpu(), *d)\n"


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_lines_are_put_before_the_last_one_that_has_no_end(newline: str) -> None:
    new = applied(f"a{newline}b", lambda tree: InsertBefore(statement(tree, "b"), ("z()",)))
    assert new == f"a{newline}z(){newline}b"


@pytest.mark.parametrize("unit", ["\t", "  "])
@pytest.mark.parametrize("text", ["c", "if c: d"])
def test_new_blocks_are_indented_as_the_file_is(unit: str, text: str) -> None:
    head = f"def f():\n{unit}a\nb\n"
    new = applied(
        f"{head}{text}\n", lambda t: PutUnder(statement(t, text), statement(t, text), "if m:", ("z()",))
    )
    assert new == f"{head}if m:\n{unit}{text}\nelse:\n{unit}z()\n"
    line = f"{unit}y" if unit == "\t" else "    y"
    new = applied(f"{head}{text}\n", lambda t: InsertBefore(statement(t, text), ("if z:", line)))
    assert new == f"{head}if z:\n{unit}y\n{text}\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("p(1,\n  2)\n", "m.p(1,\n    2)\n"),
        ("if x:\n    p(f'{a}'\n      f'{b}',\n      c=q(1,\n          2))\n",
         "if x:\n    m.p(f'{a}'\n        f'{b}',\n        c=q(1,\n            2))\n"),
        ("p(\n  1,\n  2)\n", "m.p(\n  1,\n  2)\n"),
        ("p(1,\n 2)\n", "m.p(1,\n 2)\n"),
        ("p('''a\n    b''',\n  2)\n", "m.p('''a\n    b''',\n    2)\n"),
    ],
)  # fmt: skip
def test_lines_below_the_first_argument_stay_below_it(text: str, after: str) -> None:
    def make(tree: Tree) -> list[Edit]:
        call = first_call(tree)
        return [verbs.replace(call.func, "m.p")]

    assert applied(text, make) == after
