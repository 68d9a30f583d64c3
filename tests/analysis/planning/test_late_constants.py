"""A constant that an argument of the Accelerator would read, set below what is prepared."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

{above}data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
model = torch.nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, shuffle=True)
{below}for epoch in range(2):
    for i, (x, y) in enumerate(loader):
{step}
"""
AMP = """\
        scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        with torch.autocast("cuda", enabled=use_amp):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
WINDOW = """\
        loss = F.cross_entropy(model(x.cuda()), y.cuda()) / every
        loss.backward()
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("constant", "step", "argument"),
    [
        ("use_amp = True\n", AMP, 'mixed_precision="fp16" if use_amp'),
        ("every = 4\n", WINDOW, "num_steps=every"),
    ],
    ids=["precision", "accumulation"],
)
def test_what_it_decides_stays_the_scripts(constant: str, step: str, argument: str) -> None:
    late = convert_source(Source.from_text(SCRIPT.format(above="", below=constant, step=step)))
    assert late.status == "converted"
    assert "accelerator = Accelerator()" in late.new_text
    assert late.new_text.index("accelerator.prepare(") < late.new_text.index(constant)
    early = convert_source(Source.from_text(SCRIPT.format(above=constant, below="", step=step)))
    assert argument in early.new_text
