"""What the main process draws and shows: of no training it is a draw, as that of a single process is."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, findings

BESIDE = {
    "a number": "noise = torch.rand(3)\nif dist.get_rank() == 0:\n    print(noise.sum())\n",
    "what a model makes of it": "out = model(torch.rand(3, 4))\nif dist.get_rank() == 0:\n    print(out)\n",
}
TRAINED = """
for epoch in range(9):
    total = 0.0
    for _ in range(8):
        x = torch.rand(8, 4)
        loss = F.mse_loss(model(x), x[:, :1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    if dist.get_rank() == 0:
        print(total)
"""


def shown(rest, tmp_path):
    return [one.code for one in findings(GROUP + NET + rest, tmp_path)]


@pytest.mark.parametrize("rest", BESIDE.values(), ids=BESIDE)
def test_beside_a_training(rest, tmp_path):
    assert shown(rest, tmp_path) == []


def test_of_what_each_process_trains_on(tmp_path):
    assert "ACC701" in shown(TRAINED, tmp_path)
