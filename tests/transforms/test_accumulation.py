"""Gradient accumulation."""

from __future__ import annotations

import textwrap

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(model(x), y)
{body}
"""


def convert(body: str) -> Conversion:
    text = SCRIPT.format(body=textwrap.indent(body, "    "))
    return convert_source(Source.from_text(text, PATH))


DIVIDED = "loss = loss / 4\nloss.backward()\n"
STEP = "if {test}:\n    optimizer.step()\n    optimizer.zero_grad()"


@pytest.mark.parametrize("test", ["i % 4 == 0", "i % 4 == 3 and i", "(i + 1) % n == 0 or done"])
def test_other_windows_stay(test: str) -> None:
    conversion = convert(DIVIDED + STEP.format(test=test))
    assert f"if {test}:" in conversion.new_text
    assert "accumulate(" not in conversion.new_text
    assert "ACC112" in {f.code for f in conversion.remaining}


def test_a_loss_that_is_not_averaged_over_the_window_stays() -> None:
    conversion = convert("loss.backward()\n" + STEP.format(test="(i + 1) % 4 == 0"))
    assert "accumulate(" not in conversion.new_text


@pytest.mark.parametrize(
    ("test", "plugin"),
    [
        ("(i + 1) % 4 == 0", "num_steps=4, sync_with_dataloader=False, reset_each_epoch=True"),
        ("(i + 1) % 4 == 0 or i + 1 == len(loader)", "num_steps=4, scale_last_window=False"),
    ],
)
@pytest.mark.parametrize("division", [DIVIDED, "loss /= 4\nloss.backward()\n", "(loss / 4).backward()\n"])
def test_windows(test: str, plugin: str, division: str) -> None:
    text = convert(division + STEP.format(test=test)).new_text
    assert f"GradientAccumulationPlugin({plugin})" in text
    assert text.endswith("""\
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            optimizer.step()
            optimizer.zero_grad()
""")


LOGGED = """\
loss = loss / 4
writer.add_scalar('loss', loss.item(), i)
loss.backward()
"""


def test_what_the_main_process_does_within_a_window() -> None:
    text = SCRIPT.replace("loader =", "writer = SummaryWriter()\nloader =", 1)
    text = f"from torch.utils.tensorboard import SummaryWriter\n{text}"
    body = textwrap.indent(LOGGED + STEP.format(test="(i + 1) % 4 == 0"), "    ")
    conversion = convert_source(Source.from_text(text.format(body=body), PATH))
    assert (
        """
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(x), y)
        if accelerator.is_main_process:
            writer.add_scalar('loss', (loss / 4).item(), i)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
"""
        in conversion.new_text
    )
    assert not [f for f in conversion.remaining if f.code == "ACC204"]
