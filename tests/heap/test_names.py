"""What names stand for: imports in packages, attributes whose names only the run knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import argparse
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
"""
# A class whose loss is the mean of this rank's rows.
PART = "def share(x):\n    return x.sum()\n"


def status(text: str, demand: str = "content", path: Path | None = None) -> list[Status]:
    found = validate(HEAD + text, path, KNOWLEDGE).obligations
    return [one.status for one in found if one.demand == demand]


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "train.py"


SHOWN = "total = 0\nfor x, y in loader:\n    total += int(share(x))\naccelerator.print(total)\n"


@pytest.mark.parametrize(
    "files",
    [
        {"parts/__init__.py": "from . import sums\n", "parts/sums.py": PART},
        {"parts/__init__.py": "from parts import sums\n", "parts/sums.py": f"import parts\n{PART}"},
        {"parts/__init__.py": "", "parts/sums.py": PART},
    ],
)
def test_a_module_of_a_package_that_imports_it_itself(tmp_path: Path, files: dict[str, str]) -> None:
    script = project(tmp_path, files)
    text = "from parts import sums\n" + SHOWN.replace("share", "sums.share")
    assert status(text, path=script) == [Status.NAMED]
    # Had the function not been found, a sum over rows would be none.
    gathered = text.replace("share(x)", "share(accelerator.gather_for_metrics(x))")
    assert status(gathered, path=script) == [Status.PROVED]


def test_modules_that_import_a_name_from_each_other(tmp_path: Path) -> None:
    files = {"one.py": "from other import share\n", "other.py": "from one import share\n"}
    script = project(tmp_path, files)
    assert validate(f"{HEAD}from one import share\n{SHOWN}", script, KNOWLEDGE).assumptions == []
    assert status(f"from one import share\n{SHOWN}", path=script) == [Status.NAMED]


@pytest.mark.parametrize("first", [".sums", "nowhere.sums"])
def test_the_import_that_finds_the_name(tmp_path: Path, first: str) -> None:
    script = project(tmp_path, {"sums.py": PART})
    text = f"try:\n    from {first} import share\nexcept ImportError:\n    from sums import share\n{SHOWN}"
    assert status(text, path=script) == [Status.NAMED]
    gathered = text.replace("share(x)", "share(accelerator.gather_for_metrics(x))")
    assert status(gathered, path=script) == [Status.PROVED]
