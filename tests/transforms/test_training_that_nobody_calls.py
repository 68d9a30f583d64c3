"""A function that trains, and that only others call: its loop is no evaluation."""

from __future__ import annotations

from accelify.convert import convert_source
from accelify.source import Source

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

data = torch.load("data.pt")


def train():
    net = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(data, 8):
        loss = ((net(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def folds():
    for fold in range(5):
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in DataLoader(data, 8):
            loss = ((net(x) - y) ** 2).mean()
            {training}
        print("fold", fold, loss.item())


if __name__ == "__main__":
    train()
"""


def test_nothing_is_shared_out_there_nor_gathered() -> None:
    found = convert_source(Source.from_text(SCRIPT.format(training="loss.backward(); opt.step()")))
    other = found.new_text.partition("def folds")[2]
    assert "for x, y in DataLoader(data, 8):" in other
    assert "gather" not in other
    assert not [one for one in found.remaining if one.code == "ACC303"]
    looking = convert_source(Source.from_text(SCRIPT.format(training="print(loss.item())")))
    assert "gather_for_metrics" in looking.new_text or [
        one for one in looking.remaining if one.code == "ACC303"
    ]
