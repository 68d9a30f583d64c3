"""Objects that are handed the batches of the training and of an evaluation on all of the data."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Holder:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.inputs, self.labels = None, None

    def set_input(self, x, y=None):
        self.inputs = x.float()
        if y is not None:
            self.labels = y.long()

    def note(self, x):
        print(x.shape)

    def forward(self):
        self.output = self.net(self.inputs)
        if self.labels is not None:
            self.loss = self.criterion(self.output, self.labels)

    def step(self):
        self.optimizer.zero_grad()
        self.forward()
        self.loss.backward()
        self.optimizer.step()

    def get_loss(self):
        return self.loss.item()

    def save(self, path):
        torch.save(self.net.state_dict(), path)


class Trainer:
    def __init__(self):
        data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        self.train_loader = DataLoader(data, batch_size=8, shuffle=True{collate})
        self.val_loader = DataLoader(data, batch_size=8)
        self.net = Holder()
        self.best = 1e9

    def check(self):
        total, n = 0.0, 0
        for i, (x, y) in enumerate(self.val_loader):
            {handed}
            self.net.forward()
            total += {read}
            n += 1
        return total / n

    def run(self):
        for step, (x, y) in enumerate(self.train_loader):
            self.net.set_input(x, y)
            self.net.step()
            if step % 4 == 0:
                val = self.check()
                print("val", val)
                if val <= self.best:
                    self.best = val
                    self.net.save("best.pt")


Trainer().run()
"""
HANDED = "self.net.set_input(x, y)"


def converted(handed: str = HANDED, read: str = "self.net.get_loss()", collate: str = "") -> Conversion:
    text = SCRIPT.format(handed=handed, read=read, collate=collate)
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion


def found(conversion: Conversion) -> set[str]:
    return codes(conversion) & {"ACC303", "ACC405"}


@pytest.mark.parametrize("read", ["self.net.get_loss()", "self.net.loss.item()"])
@pytest.mark.parametrize(
    "handed", [HANDED, "labels = y.clone()\n            self.net.set_input(x=x, y=labels)"]
)
def test_what_is_told_of_a_batch_of_all_of_the_data(handed: str, read: str) -> None:
    assert found(converted(handed, read)) == {"ACC303"}
