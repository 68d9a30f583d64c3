"""What is written is looked at first: names that nothing binds, calls that do not fit."""

from __future__ import annotations

import pytest

from accelify.analysis.joined import JoinedTree
from accelify.analysis.syntax import Tree
from accelify.writer import checks
from accelify.writer.checks import unbound
from accelify.writer.errors import EditError


def check(before: list[str], after: list[str]) -> None:
    names = [f"file{number}.py" for number in range(len(before))]
    checks.check(JoinedTree([Tree(text) for text in before]), before, after, names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = 1\nprint(x, __name__, __file__)\n", set()),
        ("print(accelerator)\n", {"accelerator"}),
        ("def f(a):\n    return a + b\n", {"b"}),
        ("def f():\n    global b\n    b = 1\nprint(b)\n", set()),
        ("class A:\n    x = 1\n    def f(self):\n        return x\n", {"x"}),
        ("[y for y in z]\n", {"z"}),
        ("def f():\n    y = 1\n    return lambda: y\n", set()),
        ("import a.b as c, d.e\nc, d\n", set()),
        ("for i in range(3):\n    pass\nprint(i)\n", set()),
        ("try:\n    pass\nexcept E as e:\n    print(e)\n", {"E"}),
        ("self.print(1)\n", {"self"}),
    ],
)
def test_names_that_nothing_binds(text: str, names: set[str]) -> None:
    assert unbound(text) == names


def test_a_name_that_was_bound_nowhere_before_may_stay() -> None:
    check(["print(x)\n"], ["print(x, 1)\n"])
    with pytest.raises(EditError, match="`self` would be bound nowhere in file0.py, where line 1"):
        check(["print(x)\n"], ["self.print(x)\n"])


def test_what_is_no_python_is_not_written() -> None:
    with pytest.raises(SyntaxError):
        check(["x\n"], ["x(\n"])


def test_only_what_changed_is_compiled() -> None:
    wrong = "def f():\n    pass\n\n\nreturn\n"
    check([f"x = 1\n{wrong}"], [f"x = 2\n{wrong}"])  # it is no worse than it was
    before = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
    check(["y\n", before], ["y\n", before.replace("1\n\n", "2\n\n")])
    with pytest.raises(SyntaxError):
        check(["y\n", before], ["y\n", before.replace("return 1\n\n", "break\n\n")])
    with pytest.raises(SyntaxError):
        check(["y\n", before], ["y\n", f"{before}return\n"])


FUNCTION = "def f(a, b=1):\n    pass\n"
CLASS = "class C:\n    def __init__(self, a):\n        pass\n"


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        (f"{FUNCTION}f(1)\n", "def f(acc, a, b=1):\n    pass\nf(1)\n", False),
        (f"{FUNCTION}f(1)\n", "def f(acc, a, b=1):\n    pass\nf(2, 1)\n", True),
        (f"{FUNCTION}f(*q)\n", "def f(acc, a, b=1):\n    pass\nf(*q)\n", True),
        (f"{FUNCTION}f()\n", "def f(acc, a, b=1):\n    pass\nf()\n", True),
        (f"{FUNCTION}f(1, c=2)\n", "def f(a, c):\n    pass\nf(1, c=2)\n", True),
        (f"{FUNCTION}f(1, 2, 3)\n", "def f(a):\n    pass\nf(1, 2)\n", True),
        (f"{CLASS}C(1)\n", "class C:\n    def __init__(self, acc, a):\n        pass\nC(1)\n", False),
        (f"{CLASS}C(1)\n", "class C:\n    def __init__(self, acc, *, a):\n        pass\nC(1, a=1)\n", True),
        (f"{FUNCTION}f = g\nf(1)\n", "def f(acc, a, b=1):\n    pass\nf = g\nf(1)\n", True),
    ],
)
def test_calls_of_what_takes_something_else_now(before: str, after: str, fits: bool) -> None:
    if fits:
        check([f"q = g = 1\n{before}"], [f"q = g = 1\n{after}"])
        return
    with pytest.raises(EditError, match=r"in file0.py would not fit `\w` any more: call it from"):
        check([before], [after])


def test_calls_in_other_files_that_are_edited_with_it() -> None:
    caller = "from helper import f\nf(1)\n"
    with pytest.raises(EditError, match=r"the call `f\(1\)` in file1.py"):
        check([FUNCTION, caller], ["def f(acc, a, b=1):\n    pass\n", caller])
    check([FUNCTION, caller], ["def f(acc, a, b=1):\n    pass\n", "from helper import f\nf(0, 1)\n"])
