"""Runs that follow each other under one Accelerator: each lets go of what the one before it has prepared."""

from __future__ import annotations

import textwrap

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
"""
MODEL = "model = nn.Linear(4, 2).to(device)\n"
MADE = """\
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.Adam(model.parameters())
"""
TRAINED = """\
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def within(head: str, *parts: str) -> str:
    return head + textwrap.indent("".join(parts), "    ")


def new_text(script: str) -> str:
    conversion = convert_source(Source.from_text(HEAD + script, PATH))
    assert conversion.status == "converted", conversion.reason
    again = convert_source(Source.from_text(conversion.new_text, PATH))
    assert again.new_text == conversion.new_text
    return conversion.new_text


FOLDS = "for fold in range(5):\n"
RUN = "def run(fold):\n"
REPEATED = {
    "loop": within(FOLDS, MODEL, MADE, TRAINED),
    "loop of loops": within("for seed in range(3):\n", within(FOLDS, MODEL, MADE, TRAINED)),
    "one model or another": within(
        "for name in 'ab':\n",
        within("if name == 'a':\n", MODEL, MADE),
        within("else:\n", MODEL, MADE),
        TRAINED,
    ),
    "function": within(RUN, MODEL, MADE, TRAINED) + "\n\n" + within(FOLDS, "run(fold)\n"),
}


@pytest.mark.parametrize("script", REPEATED.values(), ids=REPEATED)
def test_a_run_lets_go_of_the_one_before(script: str) -> None:
    lines = [line.strip() for line in new_text(script).splitlines()]
    at = lines.index("accelerator.free_memory()")
    made = "if name == 'a':" if "if name == 'a':" in lines else "model = nn.Linear(4, 2)"
    assert lines[at + 1] == made, "two models would be alive otherwise while another optimizer is made"
    assert lines.count("accelerator.free_memory()") == 1


ONCE = {
    "epochs": MODEL + MADE + within("for epoch in range(5):\n", TRAINED),
    "a model for all": MODEL + within(FOLDS, MADE, TRAINED),
    "a function of one run": within(RUN, MODEL, MADE, TRAINED) + "\n\nrun(0)\n",
}


@pytest.mark.parametrize("script", ONCE.values(), ids=ONCE)
def test_where_one_run_is_all_there_is_or_parts_go_on(script: str) -> None:
    assert "free_memory" not in new_text(script)


def test_an_accelerator_that_each_run_makes_sees_one_run() -> None:
    script = (
        (HEAD + REPEATED["function"])
        .replace('device = torch.device("cuda")\n', "")
        .replace("device", '"cuda"')
    )
    text = convert_source(Source.from_text(script, PATH)).new_text
    assert "    accelerator = Accelerator()\n" in text
    assert "free_memory" not in text
