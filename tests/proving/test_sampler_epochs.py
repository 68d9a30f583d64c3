"""Samplers that never learn which epoch it is, where loaders are gone through side by side."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

PAIRS = """
dist.init_process_group("gloo")
one = DistributedSampler(data, shuffle=True)
other = DistributedSampler(data, shuffle={shuffle})
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loaders = DataLoader(data, batch_size=4, sampler=one), DataLoader(data, batch_size=4, sampler=other)
for epoch in range(3):
    one.set_epoch(epoch)
    {numbered}
    for {names} in {pairs}:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
"""
NAMED = [("ACC716", "other = DistributedSampler(data, shuffle=True)")]


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        ("(x, y), (u, _)", "zip(*loaders)"),
        ("(x, y), (u, _)", "zip(loaders[0], loaders[1])"),
        ("i, ((x, y), (u, _))", "enumerate(zip(*loaders))"),
    ],
)
def test_of_loaders_side_by_side_each_sampler_needs_the_epoch(names, pairs, tmp_path):
    text = PAIRS.format(shuffle=True, numbered="pass", names=names, pairs=pairs)
    assert named(text, tmp_path) == NAMED


@pytest.mark.parametrize(("shuffle", "numbered"), [(True, "other.set_epoch(epoch)"), (False, "pass")])
def test_one_that_has_it_or_needs_none(shuffle, numbered, tmp_path):
    text = PAIRS.format(shuffle=shuffle, numbered=numbered, names="(x, y), (u, _)", pairs="zip(*loaders)")
    assert named(text, tmp_path) == []
