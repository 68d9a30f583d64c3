"""Random numbers in what only the main process does are drawn by all."""

from __future__ import annotations

import textwrap

import pytest

from tests.transforms.support import codes, convert

IMPORTS = """\
import random
import numpy as np
from torch.utils.tensorboard import SummaryWriter
"""
MADE = 'writer = SummaryWriter("runs")\n'


@pytest.mark.parametrize(
    ("setup", "lines"),
    [
        (
            'writer = SummaryWriter("runs/%d" % random.randint(0, 9))',
            [
                "drawn = random.randint(0, 9)",
                'writer = SummaryWriter("runs/%d" % drawn) if accelerator.is_main_process else None',
            ],
        ),
        (
            'writer = SummaryWriter(f"runs/{np.random.randint(9)}")',
            [
                'drawn = f"runs/{np.random.randint(9)}"',
                "writer = SummaryWriter(drawn) if accelerator.is_main_process else None",
            ],
        ),
    ],
)
def test_an_argument_of_a_writer(setup: str, lines: list[str]) -> None:
    conversion = convert(
        imports=IMPORTS, setup=setup, update='optimizer.step()\nwriter.add_scalar("loss", loss, 1)'
    )
    assert "\n".join(lines) in conversion.new_text
    assert "ACC215" in {f.code for f in conversion.applied}


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            'writer.add_scalar("a", random.random(), 1)',
            'drawn = random.random()\nif accelerator.is_main_process:\n    writer.add_scalar("a", drawn, 1)',
        ),
        (
            'with open("a", "w") as file:\n    file.write(str(random.random()))',
            "drawn = random.random()\nif accelerator.is_main_process:\n"
            '    with open("a", "w") as file:\n        file.write(str(drawn))',
        ),
        (
            'if len(x) > 2:\n    writer.add_scalar("a", random.random(), 1)',
            "if len(x) > 2:\n    drawn = random.random()\n    if accelerator.is_main_process:\n"
            '        writer.add_scalar("a", drawn, 1)',
        ),
        (
            'drawn = 1\nwriter.add_scalar("a", random.random(), drawn)',
            "drawn = 1\ndrawn_2 = random.random()\nif accelerator.is_main_process:\n"
            '    writer.add_scalar("a", drawn_2, drawn)',
        ),
    ],
)
def test_what_is_under_a_guard(line: str, after: str) -> None:
    text = convert(imports=IMPORTS, setup=MADE, update=f"optimizer.step()\n{line}").new_text
    assert textwrap.indent(after, " " * 8) in text


@pytest.mark.parametrize(
    "line",
    [
        'writer.add_scalar("a", loss.item(), 1)',  # draws nothing
        'writer.add_scalar("a", random.random() if len(x) > 2 else 0, 1)',  # may draw nothing
        'writer.add_scalar("a", max(random.random() for _ in x), 1)',  # draws as often as there are rows
        'print("a", random.random())',  # all processes work out what is printed
    ],
)
def test_what_is_not_sure_to_be_drawn_stays_where_it_is(line: str) -> None:
    conversion = convert(imports=IMPORTS, setup=MADE, update=f"optimizer.step()\n{line}")
    assert "ACC215" not in codes(conversion)
    assert line.replace("print(", "accelerator.print(") in conversion.new_text
