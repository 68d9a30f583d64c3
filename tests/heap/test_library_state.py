"""What is drawn, and seen where the picture is saved."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
SCRIPT = """\
import matplotlib.pyplot as plt, torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(2, 1), DataLoader(torch.load("d"), batch_size=8))
rates, losses = [], []
for epoch in range(3):
    rates.append(0.1 ** epoch)
    for x, y in loader:
        loss = (model(x) - y).mean()
        accelerator.backward(loss)
        losses.append(loss.item())
if accelerator.is_main_process:
    {lines}
"""


def named(*lines: str) -> list[str]:
    text = SCRIPT.format(lines="\n    ".join(lines))
    return [f"{one.sink}/{one.demand}" for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]


@pytest.mark.parametrize(
    "lines",
    [
        ("plt.plot(losses)", 'plt.savefig("a.png")'),
        ("fig, ax = plt.subplots()", "ax.plot(losses)", 'fig.savefig("a.png")'),
        ("plt.figure()", "plt.plot(rates)", "plt.bar(range(len(losses)), losses)", 'plt.savefig("a.png")'),
    ],
)
def test_a_picture_of_one_share(lines: tuple[str, ...]) -> None:
    assert named(*lines) == ["file.write/content"]


@pytest.mark.parametrize(
    "lines",
    [
        ("plt.plot(rates)", 'plt.savefig("a.png")'),
        ("plt.plot(losses)", "plt.close()", "plt.plot(rates)", 'plt.savefig("a.png")'),
        ("plt.plot(losses)", "fig, ax = plt.subplots()", "ax.plot(rates)", 'fig.savefig("a.png")'),
    ],
)
def test_a_picture_of_what_all_have(lines: tuple[str, ...]) -> None:
    assert named(*lines) == []
