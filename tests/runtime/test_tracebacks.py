"""Errors that the runtime raises for what a script did, as the script's own Python shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import torch
from accelify.runtime import Accelerator

accelerator = Accelerator(cpu=True{options})
model = accelerator.prepare(torch.nn.Linear(2, 1))
{line}
"""
AUTOMATIC = ", project_dir='here'"


def _shown(folder: Path, line: str, options: str = "", **environment: str) -> str:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(options=options, line=line))
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        (
            "accelerator.load_state()",
            "",
            "checkpoints that are named automatically need a folder: give Accelerator(project_dir=...), or the name "
            "of the checkpoint",
        ),
        (
            "accelerator.load_state()",
            AUTOMATIC,
            f"there is no complete checkpoint in {Path('here', 'checkpoints')}: call load_state where save_state has "
            "written one",
        ),
        ("accelerator.load_state('away')", "", "there is no checkpoint at away"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_one_sentence_at_the_scripts_line(
    line: str, options: str, message: str, tmp_path: Path
) -> None:
    shown = _shown(tmp_path, line, options)
    assert shown.splitlines()[-1] == f"ValueError: {message}"
    assert shown.count("  File ") == 1
    assert "train.py" in shown


def test_the_whole_traceback_is_shown_on_request(tmp_path: Path) -> None:
    shown = _shown(tmp_path, "accelerator.load_state('away')", ACCELIFY_TRACEBACK="1")
    assert "checkpoint.py" in shown


def test_an_error_of_the_script_keeps_its_frames(tmp_path: Path) -> None:
    shown = _shown(tmp_path, "model(torch.zeros(3))")
    assert shown.count("  File ") > 1


def test_another_hook_stays(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    hook = "import sys\nsys.excepthook = lambda kind, error, trace: print('mine:', error, file=sys.stderr)\n"
    script.write_text(hook + SCRIPT.format(options="", line="accelerator.load_state('away')"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1] == "mine: there is no checkpoint at away"
