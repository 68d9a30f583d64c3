"""The Accelerator comes after the imports that its arguments read, whatever plain values stand above these."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.test_unread_imports import BOTH, SCRIPT


@pytest.mark.parametrize(
    "above",
    [
        "NAMES = ['a', 'b']",
        "SIZES: dict[str, int] = {'a': 1}",
        "import time\nBEGUN = time.time()",
        "from pathlib import Path\nFILE = Path(__file__).resolve()\nROOT = FILE.parents[1]",
        "THREADS = int(os.environ.get('THREADS', 4))",
    ],
)
def test_plain_values(above: str) -> None:
    found = convert_source(Source.from_text(SCRIPT.format(imports=f"{above}\n{BOTH}")))
    assert found.status == "converted", found.reason
    assert found.new_text.index("\nimport torch\n") < found.new_text.index("accelerator = Accelerator(")
