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


STEPS = STEP.format(test="(i + 1) % 4 == 0")


@pytest.mark.parametrize(
    ("update", "plugin"),
    [
        (f"{STEPS}\nschedule.step()", "num_steps=4, adjust_scheduler=False, sync_with_dataloader=False, "),
        (f"{STEPS}\n    schedule.step()", "num_steps=4, sync_with_dataloader=False, "),
        (f"{STEPS}\nschedule.step(i / 9)", "num_steps=4, sync_with_dataloader=False, "),
    ],
)
def test_a_schedule_goes_on_in_each_batch_or_with_the_steps(update: str, plugin: str) -> None:
    made = "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)\nfor i"
    text = SCRIPT.replace("for i", made).format(body=textwrap.indent(DIVIDED + update, "    "))
    new = convert_source(Source.from_text(text, PATH)).new_text
    assert f"GradientAccumulationPlugin({plugin}reset_each_epoch=True)" in new


def test_schedules_of_both_kinds_leave_the_window_as_it_is() -> None:
    made = "".join(f"{name} = torch.optim.lr_scheduler.StepLR(optimizer, 10)\n" for name in ("one", "other"))
    update = f"{DIVIDED}{STEPS}\n    one.step()\nother.step()"
    text = SCRIPT.replace("for i", f"{made}for i").format(body=textwrap.indent(update, "    "))
    conversion = convert_source(Source.from_text(text, PATH))
    assert "accumulate(" not in conversion.new_text
    assert any("one schedule goes on in each batch" in one.message for one in conversion.remaining)


LATER = """\
        accelerator.backward(loss)
        {division}
        if accelerator.sync_gradients:
"""


@pytest.mark.parametrize(
    ("division", "later"),
    [
        ("loss = loss / 4", "loss = loss / 4"),
        ("loss /= 4", "loss /= 4"),
        ("loss = F.cross_entropy(model(x), y) / 4", "loss = loss / 4"),
        ("if 4 > 1:\n    loss = loss / 4", "loss = loss / 4"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        "    seen.append(loss.detach())",
        "    show(f'{loss.item():.3f}')",
        "print(loss.item())",
        "def last():\n    return loss.item()\nprint(last())",
    ],
)
def test_what_reads_the_loss_after_the_backward_reads_it_divided(
    division: str, later: str, read: str
) -> None:
    text = convert(f"{division}\nloss.backward()\n{STEPS}").new_text
    assert later not in text  # nothing reads it
    source = SCRIPT.format(body=textwrap.indent(f"{division}\nloss.backward()\n{STEPS}", "    ")) + read
    text = convert_source(Source.from_text(source, PATH)).new_text
    assert LATER.format(division=later) in text
    assert text.count(later) == 1


@pytest.mark.parametrize("source", ["model(x).loss", "F.cross_entropy(model(x), y)\n    parts.append(loss)"])
def test_a_loss_with_another_name_is_divided_in_place_after_all(source: str) -> None:
    body = textwrap.indent(f"loss /= 4\nloss.backward()\n{STEPS}", "    ")
    text = SCRIPT.replace("F.cross_entropy(model(x), y)", source).format(body=body)
    assert LATER.format(division="loss /= 4") in convert_source(Source.from_text(text, PATH)).new_text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "loss = loss / 4\nloss = loss + penalty\nloss.backward()\n",
            "`loss` is changed between its division",
        ),
        ("if x.sum() > 0:\n    loss = loss / 4\nloss.backward()\n", "only under a condition"),
        ("loss = loss / 4\nshow(f'{loss}')\nloss.backward()\n", "in an f-string or a function"),
        ("loss = loss / 4\nif x.sum() > 0:\n    continue\nloss.backward()\n", "the backward can be left out"),
        ("scaler.scale(loss).backward()\n", "a GradScaler that stays in the script"),
        ("loss.backward()\n", "the loss is not divided by `4` once"),
    ],
)
def test_why_a_window_stays(body: str, why: str) -> None:
    text = SCRIPT.format(body=textwrap.indent(body + STEPS, "    ")) + "print(loss.item())\n"
    if "scaler" in body:  # a cast that stays, with its scaler
        text = text.replace("loader =", "scaler = torch.cuda.amp.GradScaler()\nloader =", 1)
        text = text.replace(
            "    loss = F", "    with torch.autocast('cuda', enabled=False):\n        y = y + 0\n    loss = F"
        )
    conversion = convert_source(Source.from_text(text, PATH))
    assert "accumulate(" not in conversion.new_text
    assert [why in f.message for f in conversion.remaining if f.code == "ACC112"] == [True]


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
