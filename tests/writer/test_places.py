"""Every node of Python's tree is found in libcst's, by its way down and not by its place."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest

from accelify.analysis.syntax import Tree
from accelify.writer.application import Application
from accelify.writer.errors import EditError
from accelify.writer.writing import Written

ROOT = Path(__file__).parent.parent.parent
FILES = [
    *sorted((ROOT / "fixtures").glob("*/before.py")),
    *sorted((ROOT / "accelify" / "writer").glob("*.py")),
]
ODD = """
@d(1)
class A(B, *c, k=1, **o):
    async def f(self, a, /, b: int = 2, *r: str, k: float = 3, n, **o) -> int:
        async with a as b, c: await d
        return (yield from e)
x: int = lambda a, b=1, *c, d=2, **e: a if b else (c := d)
a[1:2:3, ..., b], c[d], e[f, ] = [*g, h], {i: j, **k}, {*l, m}
def g(): yield (p for q in r if s if t for u in v)
del a, b[c]
print(*a, k=1, *b, **c, sep=" ")
assert not a < b <= c, -d ** e or f and g and h
z = f"{a!r:>{b}}" "c" f'{d["e"]:{f}.{g}} {h=}' + "i" "j"
try: import a.b as c
except (D, E) as f: raise G from h
else: pass
finally: from . import i as j, k
match a:
    case [B(), 1] if c: d
    case _: pass
for a, *b in c: pass
else: a = b = (c, d) = ()
while a: b += c; break
"""


def expressions(tree: Tree) -> list[ast.expr]:
    return [n for n in ast.walk(tree.module) if isinstance(n, ast.expr)]


def found_in(tree: Tree) -> tuple[int, list[str]]:
    """How many nodes were found, and those that stand for another text than they do."""
    work: Application = Written(tree, []).work
    module = cst.parse_module(tree.text)
    work.known[tree.module] = module
    code = cst.Module([]).code_for_node
    found, wrong = 0, []
    for node in expressions(tree):
        parent = tree.parent(node)
        if any(isinstance(a, ast.pattern) for a in tree.ancestors(node)) or isinstance(parent, ast.JoinedStr):
            continue
        if isinstance(parent, ast.FormattedValue) and node is parent.format_spec:
            continue  # the same node as the expression in braces
        if isinstance(parent, ast.Subscript) and isinstance(node, ast.Tuple):
            continue  # without parentheses it is none of libcst's
        try:
            text = code(work.original(node))
        except EditError as error:
            wrong.append(f"{ast.unparse(node)}: {error}")
            continue
        if isinstance(node, (ast.Slice, ast.Starred)) or _read(text) == _shape(node):
            found += 1
        else:
            wrong.append(f"{ast.unparse(node)}: {text}")
    return found, wrong


def _read(text: str) -> str:
    try:
        return _shape(ast.parse(f"({text.strip()}\n)", mode="eval").body)
    except SyntaxError:
        return ""


def _shape(node: ast.AST) -> str:
    return ast.dump(node).replace("Store()", "Load()").replace("Del()", "Load()")


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_in_scripts(path: Path) -> None:
    found, wrong = found_in(Tree(path.read_text(encoding="utf-8")))
    assert not wrong
    assert found or not path.read_text()


def test_in_every_construct() -> None:
    _, wrong = found_in(Tree(ODD))
    assert wrong == []
