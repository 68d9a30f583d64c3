"""The commands that run real scripts: what they do to a script before it is run, and how results are counted."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks" / "real_scripts"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    pytest.importorskip("PIL")
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("data", "run_for_real", "sweep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__(request.param)


run_for_real = pytest.mark.parametrize("module", ["run_for_real"], indirect=True)
sweep = pytest.mark.parametrize("module", ["sweep"], indirect=True)


@run_for_real
@pytest.mark.parametrize(
    ("order", "after"),
    [
        ("epochs=2", "epochs = 2\nnet = A(\n  1)\nnet = B()\nload(batch_size=64)\n"),
        ("batch_size=8", "epochs = 90\nnet = A(\n  1)\nnet = B()\nload(batch_size=8)\n"),
        ("net@1=C()", "epochs = 90\nnet = C()\nnet = B()\nload(batch_size=64)\n"),
    ],
)
def test_a_constant_gets_another_value(module: ModuleType, tmp_path: Path, order: str, after: str) -> None:
    script = tmp_path / "train.py"
    script.write_text("epochs = 90\nnet = A(\n  1)\nnet = B()\nload(batch_size=64)\n")
    module.set_constant(script, order)
    assert script.read_text() == after


@run_for_real
def test_a_constant_that_is_not_there_is_said(module: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("epochs = 90\n")
    with pytest.raises(module.RunError, match=r"train.py binds no lr"):
        module.set_constant(script, "lr=1")


@run_for_real
def test_a_notebook_becomes_a_script(module: ModuleType, tmp_path: Path) -> None:
    cells = [["%matplotlib inline\n", "n = 5"], ["%%bash\n", "ls"], ["for _ in x:\n", "    !ls\n"]]
    book = tmp_path / "train.ipynb"
    book.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}))
    module.set_constant(book, "n=1")
    assert "%matplotlib" in book.read_text()
    code = module.code_of(book)
    compile(code, "train.py", "exec")
    assert [line for line in code.splitlines() if line and not line.startswith("#")] == [
        "n = 1", "for _ in x:", "    pass  # accelify-magic 0: !ls",
    ]  # fmt: skip


@run_for_real
def test_the_table_counts(module: ModuleType) -> None:
    row = {"repository": "a/b", "script": "t.py", "note": "", "kind": "GAN", "accelify": "1234567",
           "one": "equal", "one_told": "", "two_told": ""}  # fmt: skip
    rows = [{**row, "two": two} for two in ("equal, whole work", "not comparable", "different")]
    told = module.table(rows)
    assert "3 runs of 1 scripts: on 1 process equal to the bit in 3; on 2 processes equal or equal to" in told
    assert "rounding in 1, not comparable in 1, anything else in 1." in told
    assert told.endswith("- a/b t.py: equal | different (1234567)")


@run_for_real
def test_every_run_has_all_columns(module: ModuleType) -> None:
    with module.RUNS.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) >= 30
    assert all(None not in row and None not in row.values() for row in rows)
    assert len({(row["repository"], row["script"], row["note"]) for row in rows}) == len(rows)


@sweep
def test_scripts_that_import_a_module_are_found(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    files = {
        "engine.py": "",
        "main.py": "from engine import fit\n",
        "sub/b.py": "import os, engine\n",
        "c.py": "x",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert [str(path) for path in module.importers(tmp_path, "engine.py")] == ["main.py", "sub/b.py"]


@sweep
def test_the_share_leaves_out_what_is_no_plain_training(module: ModuleType) -> None:
    kinds = ["converted", "converted", "with its entry", "left", "no loop", "does not parse"]
    rows = [{"repo": "a/b", "path": "t.py", "kind": kind, "problems": []} for kind in kinds]
    assert module.counts(rows).endswith("| 1 | 6 (0) | 2 | 1 | 1 | 0 | 0 | 1 | 1 | 0 | 0 | 75% |")


def test_made_up_images_draw_nothing_from_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL")
    monkeypatch.syspath_prepend(str(FOLDER / "stand_ins"))
    import torchvision

    before = torch.get_rng_state()
    first, again = (torchvision.datasets.MNIST(transform=torchvision.transforms.ToTensor()) for _ in range(2))
    assert torch.equal(first[3][0], again[3][0])
    assert torch.equal(torch.get_rng_state(), before)
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        monkeypatch.delitem(sys.modules, name)
