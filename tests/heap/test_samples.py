"""How many axes what a data set gives has: a column of labels against a row of figures makes pairs of all rows."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
SCRIPT = """\
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from accelify.runtime import Accelerator
class Data(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        y = self.y[i]
        {gives}
accelerator = Accelerator()
net = accelerator.prepare(nn.Linear(4, 3))
loader = accelerator.prepare(DataLoader(Data(), batch_size=4{options}))
for {batch} in loader:
    far = F.pairwise_distance(net(a), net(b))
    accelerator.backward({loss})
"""
PAIRS = "((1 - y) * far + y * torch.clamp(2 - far, min=0)).mean()"


def proved(gives: str, loss: str = PAIRS, batch: str = "a, b, y", options: str = "") -> tuple[bool, int]:
    text = SCRIPT.format(gives=gives, loss=loss, batch=batch, options=options)
    found = validate(text, None, KNOWLEDGE)
    losses = [one.status is Status.PROVED for one in found.obligations if one.demand == "loss"]
    assert len(losses) == 1
    return losses[0], sum("of pairs" in one.text for one in found.assumptions)


@pytest.mark.parametrize(
    "gives",
    [
        "return self.a[i], self.b[i], torch.from_numpy(np.array([int(y)], dtype=np.float32))",
        "return self.a[i], self.b[i], torch.tensor([self.y[i]]).float()",
        "y = torch.FloatTensor([float(y)])\n        return self.a[i], self.b[i], y + 1",
        "return self.a[i], self.b[i], np.asarray([1.0 if y else 0.0])",
        "return self.a[i], self.b[i], torch.tensor(int(y)).unsqueeze(0)",
        "return self.a[i], self.b[i], torch.zeros(1)",
    ],
)
def test_a_column_of_labels(gives: str) -> None:
    assert proved(gives) == (False, 0)
    assert proved(gives, PAIRS.replace("y", "y[:, 0]")) == (True, 0)
    assert proved(gives, PAIRS.replace("y", "y.view(-1)")) == (True, 0)
    assert proved(gives, "F.mse_loss(far, y)") == (False, 0)
    assert proved(gives, "F.mse_loss(far.unsqueeze(1), y)") == (True, 0)
    # What another function puts together may have another shape.
    assert proved(gives, options=", collate_fn=put")[0]


@pytest.mark.parametrize(
    "gives", ["return self.a[i], self.b[i], float(y)", "return self.a[i], self.b[i], torch.tensor(int(y))"]
)
def test_a_number_for_each_sample(gives: str) -> None:
    assert proved(gives) == (True, 0)


def test_labels_of_which_nothing_is_known() -> None:
    gives = "return self.a[i], self.b[i], y"
    assert proved(gives) == (True, 2)
    assert proved(f"if i:\n            {gives.replace(', y', ', [1]')}\n        {gives}") == (True, 2)


def test_parts_by_key_and_of_parts() -> None:
    keys = 'return {"a": self.a[i], "b": self.b[i], "y": torch.tensor([1.0])}'
    loss = PAIRS.replace("y", "d['y']")
    text = SCRIPT.format(gives=keys, loss=loss, batch="d", options="").replace("(a)", "(d['a'])")
    found = validate(text.replace("(b)", "(d['b'])"), None, KNOWLEDGE).of(Status.NAMED)
    assert [one.demand for one in found] == ["loss"]
    inner = "return (self.a[i], self.b[i]), torch.tensor([1.0])"
    assert not proved(inner, batch="(a, b), y")[0]
    assert proved(inner, PAIRS.replace("y", "a[1]"), batch="(a, b), y")[0]
