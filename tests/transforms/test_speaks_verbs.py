"""Transforms and lowerings name nodes and edits.

None of them asks where in the text a node stands, or searches in the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import accelify.lowering
import accelify.transforms

PACKAGES = (accelify.transforms, accelify.lowering)
FILES = sorted(path for package in PACKAGES for path in Path(package.__path__[0]).rglob("*.py"))
# What a tree answers in bytes of the text, and the text.
BYTES = frozenset(
    {
        "start", "end", "data", "text", "size", "locate", "position", "parts", "line_start", "line_end",
        "line_starts",
    }
)  # fmt: skip


def asked_in_bytes(module: ast.Module) -> Iterator[str]:
    """Where the bytes of a tree are asked for: `tree.start(node)`, `sorted(nodes, key=context.tree.end)`."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if (owner == "tree" and node.attr in BYTES) or node.attr == "offset":
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif node.attr == "segment" and owner == "tree" and is_searched(module, node):
            yield f"line {node.lineno}: the source of a node is searched"


def is_searched(module: ast.Module, segment: ast.Attribute) -> bool:
    """`"x" in tree.segment(node)`, `tree.segment(node).split("=")`, `re.match(..., tree.segment(node))`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            inside = [getattr(right, "func", None) for right in node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            func = node.func
            searching = func.attr in (
                "find",
                "index",
                "split",
                "replace",
                "partition",
                "startswith",
                "endswith",
            )
            inside = [getattr(func.value, "func", None)] if searching else []
            if isinstance(func.value, ast.Name) and func.value.id == "re":
                inside = [getattr(argument, "func", None) for argument in node.args]
        else:
            continue
        if any(one is segment for one in inside):
            return True
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_transform_asks_for_bytes(path: Path) -> None:
    assert list(asked_in_bytes(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "text",
    [
        "context.tree.start(node) > self.tree.end(other)",
        "sorted(nodes, key=tree.start)",
        "b'x' in tree.data",
        "tree.start(node) < anchor.offset",
        "'x' in tree.segment(node)",
        "re.match('x', tree.segment(node))",
    ],
)
def test_what_asks_for_bytes_is_found(text: str) -> None:
    assert list(asked_in_bytes(ast.parse(text)))
