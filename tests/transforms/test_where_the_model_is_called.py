"""Evaluations whose outputs cannot be gathered where they are made: several calls in one statement, the time first."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert

EVALUATION = """\
right = 0
model.train()
with torch.no_grad():
    for x, y in test_loader:
        {statement}
        right += (out.argmax(1) == y).sum().item()
print(right / len(test_loader.dataset))
"""


@pytest.mark.parametrize(
    ("statement", "gathers"),
    [
        ("out = torch.stack([model(x) for _ in range(5)]).mean(0)", False),
        ("out = torch.stack([model(x)[:, :2].softmax(1) for _ in range(5)]).mean(0)", False),
        ("out = model(x)", True),
        ("out = model(x).softmax(1)", True),
    ],
)
def test_a_call_in_a_comprehension_stays_in_it(statement: str, gathers: bool) -> None:
    text = convert(setup="device = torch.device('cpu')", end=EVALUATION.format(statement=statement)).new_text
    assert ("gather_for_metrics" in text) == gathers
    assert gathers or statement in text


RECOGNISER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h){turned}


model, criterion = Net(), nn.CTCLoss()
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(36, 6, 4), torch.randint(1, 5, (36, 3)))
train, test = DataLoader(data, 8, shuffle=True), DataLoader(data, 8)
for x, y in train:
    out = model(x)
    steps = out.log_softmax(2){taken}
    loss = criterion(steps, y, torch.full((len(y),), 6), torch.full((len(y),), 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = 0
with torch.no_grad():
    for x, y in test:
        out = model(x)
        right += (out.argmax(2) == 0).sum().item()
print(right)
"""


@pytest.mark.parametrize(
    ("turned", "taken"), [(".permute(1, 0, 2)", ""), ("", ".permute(1, 0, 2)"), ("", ".transpose(0, 1)")]
)
def test_what_a_ctc_loss_takes_is_not_gathered(turned: str, taken: str) -> None:
    text = RECOGNISER.format(turned=turned, taken=taken)
    conversion = convert_source(Source(PATH, text), ConvertOptions())
    assert "gather_for_metrics" not in conversion.new_text
    (finding,) = [one for one in conversion.remaining if one.code == "ACC303"]
    assert "a CTC loss takes the time first" in finding.message
