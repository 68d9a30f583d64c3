"""Downloads of all processes, or of the others, after the main process has done them."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

PROGRAM = """
import lpips

dist.init_process_group("gloo")
rank = dist.get_rank()
ok = [False]
if {by}:
    loss = lpips.LPIPS(net="{first}")
    ok[0] = True
{waits}
{rest}
"""
LINE = 'loss = lpips.LPIPS(net="vgg")'
RESTS = {
    "the others": f"if rank > 0 and ok[0]:\n    {LINE}",
    "all": LINE,
    "all in a function": f"def load():\n    {LINE}\n    return loss\nload()",
}


@pytest.mark.parametrize("rest", RESTS.values(), ids=RESTS)
@pytest.mark.parametrize(
    ("by", "first", "waits", "is_right"),
    [
        ("rank == 0", "vgg", "dist.barrier()", True),
        ("rank == 0", "vgg", "dist.broadcast_object_list(ok, src=0)", True),
        ("rank == 0", "alex", "dist.barrier()", False),
        ("rank == 0", "vgg", "", False),
    ],
)
def test_downloads_after_the_main_process(rest, by, first, waits, is_right, tmp_path):
    found = named(PROGRAM.format(by=by, first=first, waits=waits, rest=rest), tmp_path)
    assert found == [("ACC702", LINE)] * (not is_right)
