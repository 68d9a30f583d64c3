"""Devices that are chosen in the call of the function that trains: `train(data, get_device(args))`."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader


def pick(index=0):
    return torch.device(f"cuda:{index}" if torch.cuda.is_available() else "cpu")


def train(epochs, device):
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in DataLoader(data, batch_size=4):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    USE


if __name__ == "__main__":
    train(2, GIVEN)
"""
USE = "return model(torch.ones(1, 4).to(device))"
LINES = "accelerator = Accelerator()\n    device = accelerator.device\n"


def converted(given: str, use: str = USE) -> str:
    text = TEXT.replace("GIVEN", given).replace("USE", use)
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    return found.new_text


def test_a_device_that_is_read_no_more_stays_as_it_is() -> None:
    assert "device = accelerator.device" not in converted("pick()", "return model")


def test_the_host_that_is_named_stays() -> None:
    assert "device = accelerator.device" not in converted('torch.device("cpu")')


@pytest.mark.parametrize(
    "given",
    [
        "pick()",
        "device=pick(index=1)",
        'torch.device("cuda:0")',
        'device=torch.device("cuda:1" if torch.cuda.is_available() else "cpu")',
    ],
)
def test_each_process_works_on_its_own(given: str) -> None:
    text = converted(given)
    assert LINES in text
    assert USE in text


KEPT = """
class Trainer:
    def __init__(self, model, device):
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader):
        for x, y in loader:
            noise = torch.randn(1).to(self.device)
            loss = nn.functional.cross_entropy(self.model(x.to(self.device)) + noise, y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def of(net):
    return next(net.parameters()).device


net = nn.Linear(4, 2)
trainer = Trainer(net, GIVEN)
trainer.fit(DataLoader(data, batch_size=4))
"""


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ("pick()", "accelerator.device"),
        ('torch.device("cuda:0")', "accelerator.device"),
        ("device=torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "device=accelerator.device"),
        ("torch.device('cpu')", "torch.device('cpu')"),
        ("of(net)", "of(net)"),
    ],
)
def test_so_does_an_object_that_is_made_behind_the_accelerator(given: str, after: str) -> None:
    text = TEXT[: TEXT.index("def train")] + KEPT.replace("GIVEN", given)
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    assert f"net, {after})\ntrainer.fit(" in found.new_text
