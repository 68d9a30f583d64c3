"""An optimizer of a plain function, which the object with the Accelerator calls."""

from __future__ import annotations

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model):
        self.model = model.to("cuda")

    def fit(self, epochs):
        train(self.model, epochs)


def train(model, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in DataLoader(data, batch_size=4):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    Trainer(nn.Linear(4, 2)).fit(2)
"""


def test_it_is_prepared_by_the_accelerator_that_the_function_is_given() -> None:
    found = convert_source(Source.from_text(TEXT, PATH))
    assert found.status == "converted", found.reason
    assert "train(self.accelerator, self.model, epochs)" in found.new_text
    assert "def train(accelerator, model, epochs):" in found.new_text
    assert "    optimizer = accelerator.prepare(optimizer)\n" in found.new_text
