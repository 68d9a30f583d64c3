"""ACC204: a run that an option asks for, and the questions whether there is one."""

from __future__ import annotations

import pytest

from accelify.proving import prove
from tests.transforms.support import convert

OPTION = "import os\nimport wandb\nwanted = os.environ.get('LOG')\n"
MADE = "run = wandb.init(project='a') if wanted else None\n"


@pytest.mark.parametrize("test", ["run", "run is not None", "run and epoch > 3"])
def test_it_is_started_and_written_once(test: str) -> None:
    text = convert(setup=f"{OPTION}{MADE}", epoch=f"if {test}:\n    run.log({{'a': 1}})").new_text
    assert "run = wandb.init(project='a') if accelerator.is_main_process and wanted else None" in text
    assert f"if accelerator.is_main_process and {test}:" in text


@pytest.mark.parametrize(
    "lines",
    [
        "if run is None:\n    print('none')",
        "if run:\n    run.log({'a': 1})\nelse:\n    total = 0",
        "print(run.name)",
    ],
)
def test_what_the_others_would_do_otherwise_is_said(lines: str) -> None:
    found = convert(setup=f"{OPTION}{MADE}", epoch=lines)
    assert MADE in found.new_text
    prove([found], found)
    assert any("`wandb.init`" in one.message for one in found.remaining if one.code == "ACC702")
