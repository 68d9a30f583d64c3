"""Files that are written where they are missing: all processes have to find that alike where they meet by it."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

ASKS = 'os.path.exists("a.pt")'
WRITES = 'if dist.get_rank() == 0:\n        torch.save(torch.ones(3), "a.pt")'
OF_ALL = f"""
if not {ASKS}:
    {WRITES}
    dist.barrier()
"""
NAMED = f"""
there = {ASKS}
if there:
    print("there", dist.get_rank())
else:
    {WRITES}
    dist.barrier()
"""
RETURNS = f"""
def fetch():
    if {ASKS}:
        return
    {WRITES}
    dist.barrier()


fetch()
"""
WAITS = f"""
found = {ASKS}
dist.barrier()
if not found:
    {WRITES}
    dist.barrier()
"""
BOTH_MEET = f"""
if {ASKS}:
    dist.barrier()
else:
    {WRITES}
    dist.barrier()
"""
NONE_MEETS = f"""
if not {ASKS}:
    {WRITES}
dist.barrier()
"""
OTHER = OF_ALL.replace(ASKS, 'os.path.exists("b.pt")')


@pytest.mark.parametrize("text", [OF_ALL, NAMED, RETURNS])
def test_who_asks_when_it_is_written_goes_past_the_others(text, tmp_path):
    line = next(line.strip() for line in text.splitlines() if ASKS in line)
    assert named(GROUP + NET + text, tmp_path) == [("ACC709", line)]


@pytest.mark.parametrize("text", [WAITS, BOTH_MEET, NONE_MEETS, OTHER])
def test_all_find_it_alike_or_meet_all_the_same(text, tmp_path):
    assert named(GROUP + NET + text, tmp_path) == []
