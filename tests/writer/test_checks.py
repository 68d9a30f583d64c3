"""What is written is looked at first: names that nothing binds, calls that do not fit."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.joined import JoinedTree
from accelify.analysis.syntax import Tree
from accelify.writer import checks
from accelify.writer.assignment import Assignments
from accelify.writer.attributes import Attributes
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


def unassigned(text: str) -> set[str]:
    tree = ast.parse(text)
    found = {name for _, name in Assignments(tree).unassigned}
    return found | {f"{cls}.{name}" for cls, name in Attributes(tree).lacking}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("print(x)\nx = 1\n", {"x"}),
        ("x = 1\ndel x\nprint(x)\n", {"x"}),
        ("if q():\n    x = 1\nprint(x)\n", {"x"}),
        ("if q():\n    x = 1\nelse:\n    x = 2\nprint(x)\n", set()),
        ("if q():\n    x = 1\nelse:\n    raise E\nprint(x)\n", set()),
        ("if a:\n    x = 1\nprint()\nif a:\n    print(x)\n", set()),
        ("if not a:\n    y = 1\nelse:\n    x = 1\nif a:\n    print(x)\n", set()),
        ("if a:\n    x = 1\nif b:\n    print(x)\n", {"x"}),
        ("for i in z:\n    x = i\nprint(x)\n", {"x"}),
        ("for i in z:\n    x = i\n    break\nelse:\n    x = 1\nprint(x)\n", set()),
        ("while True:\n    x = 1\n    if x:\n        break\nprint(x)\n", set()),
        ("while q():\n    x = 1\nprint(x)\n", {"x"}),
        ("try:\n    x = 1\nexcept E:\n    pass\nprint(x)\n", {"x"}),
        ("try:\n    x = 1\nexcept E as e:\n    x = e\nelse:\n    y = 1\nprint(x)\n", set()),
        ("try:\n    q()\nfinally:\n    x = 1\nprint(x)\n", set()),
        ("with q() as x:\n    y = x\nprint(x, y)\n", set()),
        ("match q:\n    case [x, *y]:\n        print(x, y)\n    case x:\n        pass\nprint(x)\n", set()),
        ("match q:\n    case 1:\n        x = 1\nprint(x)\n", {"x"}),
        ("if (x := q()):\n    print(x)\n", set()),
        ("[y for y in z if (x := y)]\nprint(x)\n[w for w in v if w]\nv = 1\n", {"v"}),
        ("def f():\n    print(x)\nf()\nx = 1\n", {"x"}),
        ("def f():\n    print(x)\nx = 1\nf()\n", set()),
        ("def f():\n    g()\ndef g():\n    f(), x\nf()\nx = 1\n", {"x"}),
        ("class A:\n    def __init__(self):\n        print(x)\nA()\nx = 1\n", {"x"}),
        ("def f():\n    global x\n    x = 1\nf()\nprint(x)\n", set()),
        ("class A:\n    y = x\nx = 1\n", {"x"}),
        ("f = lambda: x\nx = 1\n", set()),
        ("def f(a=x):\n    pass\nx = 1\n", {"x"}),
        ("import sys\nif q():\n    x = 1\nelse:\n    sys.exit()\nprint(x)\n", set()),
        ("def f():\n    def g():\n        return x\n    g()\n    x = 1\n", {"x"}),
        ("def f():\n    def g():\n        return x\n    x = 1\n    g()\n", set()),
        ("def f():\n    if q:\n        return\n    x = 1\n    print(x)\n", set()),
        ("def f():\n    x += 1\n", {"x"}),
    ],
)
def test_names_that_may_not_be_assigned_where_they_are_read(text: str, names: set[str]) -> None:
    assert unassigned(text) == names


BASE = "class A:\n    def __init__(self):\n        self.x = 1\n    def f(self):\n        return self.x\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (BASE, set()),
        (f"{BASE}class B(A):\n    pass\n", set()),
        (f"{BASE}class B(A):\n    def __init__(self):\n        pass\n", {"B.x"}),
        (f"{BASE}class B(A):\n    def __init__(self):\n        super().__init__()\n", set()),
        (f"{BASE}class B(A):\n    def __init__(self):\n        A.__init__(self)\n", set()),
        (
            f"{BASE}class B(A):\n    def __init__(self):\n        self.f()\n        super().__init__()\n",
            {"B.x"},
        ),
        (
            f"{BASE}class B(A):\n    def __init__(self):\n        pass\n    def f(self):\n        return 1\n",
            set(),
        ),
        (f"{BASE}class B(A):\n    x = 2\n    def __init__(self):\n        pass\n", set()),
        (f"{BASE}    def __getattr__(self, name):\n        return 1\n", set()),
        (BASE.replace("self.x = 1\n", "self.f()\n        self.x = 1\n"), {"A.x"}),
        (BASE.replace("self.x = 1\n", "self.g()\n    def g(self):\n        self.x = 1\n"), set()),
        (BASE.replace("self.x = 1\n", "pass\n    def g(self):\n        self.x = 1\n"), set()),
        (BASE.replace("self.x = 1\n", "if q:\n            self.x = 1\n"), {"A.x"}),
        (BASE.replace("self.x = 1\n", "pass\n") + "A()\n", {"A.x"}),
        (BASE.replace("A:\n", "A:\n    __slots__ = ('y',)\n"), {"A.x"}),
        (BASE.replace("A:\n", "A(Z):\n    __slots__ = ('y',)\n"), set()),
        (BASE.replace("class", "@dataclass(frozen=True)\nclass"), {"A.x"}),
    ],
)
def test_attributes_that_objects_may_lack(text: str, names: set[str]) -> None:
    assert unassigned(text) == names


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "def f():\n    q()\nf()\n",
            "def f():\n    q(x)\nf()\nx = 1\n",
            "`x` may not be assigned yet where line 3",
        ),
        ("y = 1\nif a:\n    x = y\nprint(x)\n", "if a:\n    x = 2\nprint(x)\n", ""),
        (
            BASE,
            BASE.replace("1", "self.y\n        self.y = 1"),
            "objects of `A` may have no `y` where line 3",
        ),
        ("a = 1\n", "from r import A\na = A()\na = 1\n", "`a` has another meaning in file0.py"),
        ("A = 1\nq()\n", "from r import A\nA = 1\nA()\n", "`A` has another meaning"),
        (
            "def f(a):\n    q()\n",
            "from r import A\na = A()\ndef f(a):\n    q(a)\n",
            "`a` has another meaning",
        ),
        ("def f(a):\n    q()\n", "from r import A\na = A()\ndef f(a):\n    q()\n", ""),
        ("def f(a):\n    q()\n", "from r import A\ndef f(a):\n    b = A()\n    q(b)\n", ""),
        # Who reads a name that may lack is not reached a second time without it, and who asks for more, asks for that.
        ("if a:\n    x = 1\nprint(x)\n", "if a:\n    x = 1\nprint(x)\nprint(x)\n", ""),
        ("if a:\n    x = b\nif a:\n    q(x)\n", "if a:\n    x = b\nif a and b:\n    q(x)\n", ""),
        ("a = 1\nq(a)\n", "from r import A\na = 1\na = A(a)\nq(a)\n", ""),
    ],
)
def test_what_edits_leave_unassigned(before: str, after: str, message: str) -> None:
    if not message:
        check([before], [after])
        return
    with pytest.raises(EditError, match=message):
        check([before], [after])
