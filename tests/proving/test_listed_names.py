"""Files of the main process beside a listing of all processes: a race where the listing may have them in it."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

PROGRAM = """
import glob
from datetime import datetime
stamp = datetime.now().strftime("%Y%m%d")
out = os.environ["OUT"]
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    with open(os.path.join(out, {written}), "w") as file:
        file.write("1")
found = glob.glob(os.path.join(out, {listed}))
dist.barrier()
"""


@pytest.mark.parametrize(
    ("written", "listed", "is_right"),
    [
        ('f"settings_{stamp}.json"', '"checkpoint-*"', True),
        ('f"settings_{stamp}.json"', '"*.pt"', True),
        ('"settings.json"', '"checkpoint-*"', True),
        ('f"settings_{stamp}.json"', '"*.json"', False),
        ('f"checkpoint-{stamp}.pt"', '"checkpoint-*"', False),
        ('f"{stamp}.pt"', '"checkpoint-*"', False),
        ('f"settings_{stamp}.json"', '"set*.json"', False),
    ],
)
def test_listings_beside_files(written, listed, is_right, tmp_path):
    found = findings(PROGRAM.format(written=written, listed=listed), tmp_path)
    assert any(one.code == "ACC709" for one in found) != is_right
