"""Modules of the project that do not parse."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import codes, convert, frame

OLD = "from torch import nn\n\n\nclass Weighted(nn.NLLLoss):\n    pass\n\n\nprint 'made'\n"


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("from old import Weighted\nWeighted()", "from old import Weighted"),
        ("import old\nold.Weighted()", "import old"),
        ("from pack.inner import old\nold.Weighted()", "from pack.inner import old"),
        ("import pack.inner.old as old\nold.Weighted()", "import pack.inner.old as old"),
        ("from pack import make\nmake()", None),
    ],
)
def test_it_is_named_where_it_is_imported(tmp_path: Path, imports: str, line: str | None) -> None:
    inner = tmp_path / "pack" / "inner"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    made = "from .inner.old import Weighted\n\n\ndef make():\n    return Weighted()\n"
    (tmp_path / "pack" / "__init__.py").write_text(made if line is None else "")
    for place in (tmp_path, inner):
        (place / "old.py").write_text(OLD)
    text = frame(imports=imports)
    (tmp_path / "train.py").write_text(text)
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    (said,) = [f for f in found.remaining if f.code == "ACC429"]
    assert said.message.startswith("old.py, line 8, does not parse under Python 3")
    assert text.splitlines()[said.line - 1] == (line or "import os")


def test_a_library_and_a_module_of_which_nothing_is_used(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "train.py").write_text(frame(imports="import old, absent"))
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert "ACC429" not in [f.code for f in found.remaining]
    assert "ACC429" not in codes(convert(imports="from absent import x\nx()"))
