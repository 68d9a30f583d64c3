"""Recurrent layers give their states with the rows along the second axis, whatever their input has."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator

accelerator = Accelerator()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.{layer}(4, 3, batch_first=True)
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        {body}


model = accelerator.prepare(Net())
loader = accelerator.prepare(DataLoader(TensorDataset(torch.load("x"), torch.load("y")), batch_size=8))
total = 0
for x, y in loader:
    found = accelerator.gather_for_metrics(model(x))
    total += found.pow(2).sum().item()
accelerator.print(total)
"""


def _named(layer: str, body: str) -> list[str]:
    found = validate(SCRIPT.format(layer=layer, body=body), None, KNOWLEDGE).of(Status.NAMED)
    return [step.text for one in found if one.reason for step in one.reason.steps()]


@pytest.mark.parametrize(
    ("layer", "body"),
    [
        ("GRU", "out, h = self.rnn(x); return self.fc(out[:, -1])"),
        ("GRU", "out, h = self.rnn(x); return self.fc(h[-1])"),
        ("GRU", "out, h = self.rnn(x); return self.fc(h.squeeze(0))"),
        ("GRU", "out, h = self.rnn(x); return self.fc(h.transpose(0, 1)[:, 0])"),
        ("GRU", "out, h = self.rnn(x); out, h = self.rnn(x, h); return self.fc(h[0])"),
        ("LSTM", "out, (h, c) = self.rnn(x); return self.fc(h[-1] + c[-1])"),
        ("LSTM", "out, state = self.rnn(x); return self.fc(state[0][-1])"),
        ("LSTM", "return self.fc(self.rnn(x)[0][:, -1])"),
    ],
)
def test_rows_of_a_state(layer: str, body: str) -> None:
    assert _named(layer, body) == []


@pytest.mark.parametrize(
    ("layer", "body"),
    [
        ("GRU", "out, h = self.rnn(x); return h"),
        ("LSTM", "out, (h, c) = self.rnn(x); return c"),
        ("LSTM", "return self.fc(self.rnn(x)[1][0])"),
    ],
)
def test_a_state_is_not_gathered_along_the_first_axis(layer: str, body: str) -> None:
    assert any("along the first axis what has its rows along another" in text for text in _named(layer, body))
