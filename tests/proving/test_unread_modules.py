"""Modules of the project that do not parse."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.proving import entries_of, prove
from accelify.source import Source
from tests.transforms.support import frame

OLD = "from torch import nn\n\n\nclass Weighted(nn.NLLLoss):\n    pass\n\n\nprint 'made'\n"


def notes(folder: Path, imports: str) -> list[str]:
    (folder / "train.py").write_text(frame(imports=imports))
    conversions = convert_project(Source.read(folder / "train.py"))
    (entry,) = entries_of(conversions, [folder / "train.py"])
    prove(conversions, entry)
    return [note for note in entry.notes if note.startswith("not read further")]


@pytest.mark.parametrize(
    "imports",
    [
        "from old import Weighted\nWeighted()",
        "import old\nold.Weighted()",
        "from pack.inner import old\nold.Weighted()",
        "import pack.inner.old as old\nold.Weighted()",
        "from pack import make\nmake()",
    ],
)
def test_a_note_says_that_it_is_not_read(tmp_path: Path, imports: str) -> None:
    inner = tmp_path / "pack" / "inner"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    made = "from .inner.old import Weighted\n\n\ndef make():\n    return Weighted()\n"
    (tmp_path / "pack" / "__init__.py").write_text(made if "make" in imports else "")
    for place in (tmp_path, inner):
        (place / "old.py").write_text(OLD)
    (note,) = notes(tmp_path, imports)
    assert "old.py:8)" in note


def test_a_library_is_not_one(tmp_path: Path) -> None:
    assert not notes(tmp_path, "from absent import x\nx()")


@pytest.mark.parametrize(
    "lines",
    [
        "from pack import made\nmade.show()",
        "import pack.made\npack.made.show()",
        "import pack.made as made\nmade.show()",
        "from pack.made import show\nshow()",
        "from pack.deep import inner\ninner.show()",
    ],
)
def test_a_folder_is_a_package_without_a_file_that_says_so(tmp_path: Path, lines: str) -> None:
    for name in ("pack/made.py", "pack/deep/inner.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def show():\n    print(1)\n")
    text = f"from accelify.runtime import Accelerator\naccelerator = Accelerator()\n{lines}\n"
    found = validate(text, tmp_path / "train.py", Knowledge())
    assert not found.unknown_modules
    assert [one.demand for one in found.of(Status.NAMED)] == ["once"]
