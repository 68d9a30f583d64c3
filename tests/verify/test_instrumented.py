"""Instrumented code does what the plain code does, test by test, and says what each test came to."""

from __future__ import annotations

import ast
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelify.verify.observe.instrumented import DECIDED, PASSED, Instrumented, instrument

SHOUT = """
class B:
    def __init__(self, name, value): self.name, self.value = name, value
    def __bool__(self):
        seen.append(self.name)
        return self.value
"""
SNIPPETS = [
    "if B('a', 1 == 1) and B('b', False): x = 1\nelif B('c', True) or B('d', True): x = 2\nelse: x = 3",
    "if not B('a', False) and (B('b', True) or B('c', True)): x = 1",
    "if (n := len([1, 2])) > 1: x = n",
    "x = 1 if B('a', False) else 2 if B('b', True) else 3",
    "x = [i if i % 2 else -i for i in range(4) if i]",
    "f = lambda v: 1 if v else 2\nx = f(0), f(1)",
    "i = 0\nwhile B('w', i < 3) if i < 9 else False:\n    i += 1\n    if i == 2: continue\nelse:\n    x = i",
    "for i in range(5):\n    if i == 3: break\nelse:\n    x = 'never'\nx = i",
    "try:\n    assert B('a', False), 'why'\nexcept AssertionError as error:\n    x = str(error)",
    "try:\n    1 / 0\nexcept (ValueError, ZeroDivisionError) as e:\n    x = str(e)\nelse: x = 0\nfinally: y = 1",
    "def g():\n    'doc'\n    if (yield 1): yield 2\n    return 3\ng0 = g()\nnext(g0)\nx = g0.send(True), g.__doc__",
    "import asyncio\nasync def t():\n    return True\nasync def r():\n    if await t(): return 5\nx = asyncio.run(r())",
    "match (1, 2):\n    case (a, b) if a > b: x = 'gt'\n    case (a, b) if a < b: x = 'lt'\n    case _: x = 0",
    "class C:\n    if True:\n        y = 1\n    __z = 2 if y else 3\nx = C.y, C._C__z",
    "def o():\n    v = 1\n    def f():\n        nonlocal v\n        if v: v = 2\n    f()\n    return v\nx = o()",
    "try:\n    try:\n        {}[1]\n    except KeyError as e:\n        raise ValueError from e\n"
    "except ValueError as e:\n    x = repr(e.__cause__)",
    "x = (lambda: 1)() if B('a', True) else 0\nif x: pass\nassert x",
    "x = f\"{'a' if B('q', True) else 'b'}\"",
    "try:\n    raise ExceptionGroup('g', [ValueError(1)])\nexcept* ValueError as g:\n    x = len(g.exceptions)",
    "from __future__ import annotations\ndef f(a: not_defined = 1):\n    return a\nx = f.__annotations__",
    "x = sorted(locals()) if 1 else 0",
    "global_names = [n for n in dir() if n.startswith('__accelify')]\nx = global_names",
]  # fmt: skip


def execute(
    source: str, instrumented: bool
) -> tuple[dict[str, Any], list[str], list[tuple[int, bool | None]]]:
    """The names that a source leaves, the truth values it asked for, and what was recorded."""
    import builtins

    recorded: list[tuple[int, bool | None]] = []

    def decided(number: int, outcome: bool) -> bool:
        assert type(outcome) is bool
        recorded.append((number, outcome))
        return outcome

    setattr(builtins, DECIDED, decided)
    setattr(builtins, PASSED, lambda *numbers: recorded.extend((number, None) for number in numbers))
    seen: list[str] = []
    names: dict[str, Any] = {"seen": seen, "__name__": "snippet"}
    exec(SHOUT, names)
    try:
        tree: ast.AST = instrument(source, 0).tree if instrumented else ast.parse(source)
        exec(compile(tree, "snippet.py", "exec", dont_inherit=True), names)  # type: ignore[arg-type]
    finally:
        delattr(builtins, DECIDED)
        delattr(builtins, PASSED)
    return {name: names.get(name) for name in ("x", "y", "i")}, seen, recorded


@pytest.mark.parametrize("source", SNIPPETS)
def test_snippets_do_the_same(source: str) -> None:
    plain, asked, nothing = execute(source, instrumented=False)
    changed, asked_again, _ = execute(source, instrumented=True)
    assert changed == plain
    assert asked_again == asked
    assert not nothing


@given(
    st.recursive(
        st.sampled_from(["B('t', True)", "B('f', False)", "1", "0", "None"]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            inner.map(lambda p: f"(not {p})"),
            st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        ),
        max_leaves=8,
    )
)
def test_any_test_asks_the_same_and_comes_to_the_same(test: str) -> None:
    source = f"if {test}:\n    x = 1\nelse:\n    x = 2\n"
    plain, asked, _ = execute(source, instrumented=False)
    changed, asked_again, recorded = execute(source, instrumented=True)
    assert (changed, asked_again) == (plain, asked)
    assert [outcome for number, outcome in recorded if number == 0] == [plain["x"] == 1]


def test_what_is_recorded() -> None:
    _, _, recorded = execute(
        "for i in (0, 1, 2):\n    if i == 1: y = 1\ntry: [][1]\nexcept IndexError: x = 1", True
    )
    assert recorded == [(0, False), (0, True), (0, False), (1, True)]
    _, _, recorded = execute("try: 1\nexcept IndexError: x = 1\nexcept KeyError: pass\n", True)
    assert recorded == [(0, None), (1, None)], "none of the two was needed"


def test_lines_of_a_traceback_stay() -> None:
    source = "def f(a):\n    if (a and\n            1 / 0):\n        pass\nf(\n  1)\n"
    lines = []
    for instrumented in (False, True):
        with pytest.raises(ZeroDivisionError) as caught:
            execute(source, instrumented)
        found = traceback.extract_tb(caught.value.__traceback__)
        lines.append([(f.name, f.lineno) for f in found if f.filename == "snippet.py"])
    assert lines[0] == lines[1]


def described(source: str) -> Instrumented:
    return instrument(source, 0)


def test_what_a_test_is_about() -> None:
    source = (
        "for epoch in range(9):\n"
        "    for batch in loader:\n"
        "        if bad(batch):\n"
        "            continue\n"
        "        loss.backward()\n"
        "    if score < best:\n"
        "        best = score\n"
        "        torch.save(model.state_dict(), 'm.pt')\n"
        "    elif since > 3:\n"
        "        break\n"
        "    if show and accelerator.is_main_process:\n"
        "        print(1)\n"
    )
    bad, better, stop, show = described(source).tests
    assert (bad.leaves, bad.ends, bad.scope) == (True, False, (2, 5))
    assert (better.carries, better.saves, better.body) == (True, True, (7, 8))
    assert better.leaves, "what stands in its else leaves"
    assert (stop.leaves, stop.ends, stop.scope) == (True, True, (1, 12))
    assert (show.by_rank, show.leaves, show.carries) == (True, False, False)


def test_an_inner_loop_keeps_its_breaks() -> None:
    inner, outer = described("if a:\n    for i in b:\n        if c: break\n").tests[::-1]
    assert inner.leaves
    assert not outer.leaves


def test_samples_are_left_alone() -> None:
    source = "class D:\n    def __getitem__(self, i):\n        if i: return 1\n        return [j for j in x if j]\n"
    assert not described(source).tests
    assert not described("@torch.jit.script\ndef f(x):\n    if x: return 1\n    return 2\n").tests


def test_every_module_of_the_standard_library_compiles() -> None:
    tried = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if {"site-packages", "lib2to3", "test", "tests", "idlelib", "encodings"} & set(path.parts):
            continue
        data = path.read_bytes()
        try:
            compile(data, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        compile(instrument(data, 0).tree, str(path), "exec", dont_inherit=True)
        tried += 1
    assert tried > 300
