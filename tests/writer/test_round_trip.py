"""What is copied by the writer without an edit comes back as it was."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from accelify.analysis.syntax import Tree
from accelify.writer.writing import Written
from benchmarks.writer_round_trip import files_below, round_trip

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    pass\nexcept (A) :\n    pass\n",
        "try:\n    pass\nexcept (A, B)  : x\nexcept C as c :\n    pass\nexcept :\n    pass\n",
        "try:\n    try:\n        pass\n    except A\t:\n        pass\nexcept B.c :\n    pass\n",
        "try:\n    pass\nexcept* A :\n    pass\n",
        "try:\n    pass\nexcept (\n    A  # one: two\n) :\n    pass\n",
        "while x :\n  pass\nelse :\n  pass\n",
        "x = 1 ; y = 2;\r\nif x :\r\n\ty\r\n",
        "\x0c\ndef f() :\n\n    \x0c\n    return(1)\n\x0c",
        "x = \\\n  1\n# no newline at the end",
        "def f():\n    if x:\n        pass\n\n        \n\n \n",
        "def f():\n    pass  \n\n \n",
        "def f():\r\n    pass\r\n\r\n    \r\n\r\n  \r\n ",
    ],
)
def test_every_statement_is_written_as_it_was(text: str) -> None:
    tree = Tree(text)
    statements = [node for node in ast.walk(tree.module) if isinstance(node, (ast.stmt, ast.ExceptHandler))]
    assert Written(tree, (), copied=statements).data.decode() == text


def test_accelify_s_own_files() -> None:
    outcomes = {
        path: round_trip(path)[0] for path in files_below([ROOT / "accelify" / "writer", ROOT / "fixtures"])
    }
    assert set(outcomes.values()) == {"same"}, outcomes
