"""Scripts whose training loop is in what they hand the optimizer, and which is nowhere to be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source

SCRIPT = """\
import torch
from solver import Solver
{imports}
model = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{run}
"""


@pytest.mark.parametrize(
    ("imports", "run", "named"),
    [
        ("", "Solver(model, optimizer).train()", "`solver.Solver`, which line 6 hands the optimizer"),
        ("import kit", "kit.fit(model, optim=optimizer)", "`kit.fit`, which line 6 hands the optimizer"),
    ],
)
def test_it_is_named(tmp_path: Path, imports: str, run: str, named: str) -> None:
    found = _converted(tmp_path, imports, run)
    assert found.status == "refused"
    assert named in found.remaining[0].message


@pytest.mark.parametrize(
    "run",
    [
        "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)",
        "print(optimizer)",
        "Solver(model).train()",
    ],
)
def test_a_script_that_hands_it_to_nobody_trains_nothing(tmp_path: Path, run: str) -> None:
    found = _converted(tmp_path, "", run)
    assert found.status == "unchanged"
    assert found.reason == "it has no training loop (no call of backward)"


def _converted(folder: Path, imports: str, run: str) -> Conversion:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(imports=imports, run=run))
    return convert_project(Source.read(path))[0]
