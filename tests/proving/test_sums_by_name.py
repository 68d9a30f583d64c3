"""Sums that a dictionary has by their names, each put together over the processes in place."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, LOOP, NET, named

SUMS = """
sums = {"right": torch.zeros(1), "wrong": torch.zeros(1)}
with torch.no_grad():
    for x, y in loader:
        out = model(x) > 0
        sums["right"] += (out & (y > 0)).sum()
        sums["wrong"] += (out & (y <= 0)).sum()
"""
SHOWN = """
if dist.get_rank() == 0:
    print((sums["right"] / (sums["right"] + sums["wrong"])).item())
"""
WAYS = {
    "each": 'dist.all_reduce(sums["right"])\ndist.all_reduce(sums["wrong"])\n',
    "by its keys": "for name in sums:\n    dist.all_reduce(sums[name])\n",
    "by names": 'for name in ("right", "wrong"):\n    dist.all_reduce(sums[name])\n',
    "its values": "for one in sums.values():\n    dist.all_reduce(one)\n",
    "its items": "for name, one in sums.items():\n    dist.all_reduce(one)\n",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_all_sums_are_put_together(way, tmp_path):
    assert not named(GROUP + NET + LOOP + SUMS + way + SHOWN, tmp_path)


@pytest.mark.parametrize("way", ["", 'dist.all_reduce(sums["right"])\n'])
def test_some_sums_are_of_one_process(way, tmp_path):
    assert [code for code, _ in named(GROUP + NET + LOOP + SUMS + way + SHOWN, tmp_path)] == ["ACC701"]
