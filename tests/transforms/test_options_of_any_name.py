"""Options are known by what they are made of, and not by the name that a script has for them."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import argparse
import json

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader

from data import dataset, table


def fit(net, device="cuda"):
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(dataset, batch_size=4)
    for x, y in loader:
        loss = (net(x.to(device)) - y.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def parsed(parser):
    return parser.parse_args()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    {made}
    net = nn.Linear(4, 1)
    fit(net, device={read})
"""


def converted(made: str, read: str) -> str:
    conversion = convert_source(Source.from_text(SCRIPT.format(made=made, read=read), PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion.new_text


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("{name} = parser.parse_args()", "{name}.device"),
        ("{name} = parsed(parser)", "{name}.device"),
        ("{name}, rest = parser.parse_known_args()", "{name}.device"),
        ("{name} = vars(parser.parse_args())", '{name}["device"]'),
        ("first = parser.parse_args()\n    {name} = vars(first)", '{name}["device"]'),
        ('{name} = json.load(open("run.json"))', '{name}["device"]'),
        ('{name} = yaml.safe_load(open("run.yaml"))', '{name}["device"]'),
    ],
)
@pytest.mark.parametrize("name", ["options", "argv", "wanted"])
def test_any_name_of_options(made: str, read: str, name: str) -> None:
    read = read.format(name=name)
    text = converted(made.format(name=name), read)
    assert f'    accelerator = Accelerator(cpu=str({read}) == "cpu")\n    {read} = accelerator.device' in text


@pytest.mark.parametrize("name", ["argv", "wanted"])
def test_what_is_known_to_be_something_else_is_not_written_to(name: str) -> None:
    for made in (f"{name} = torch.zeros(3)", f"{name} = table"):
        text = converted(made, f"{name}.device")
        assert f"{name}.device =" not in text


@pytest.mark.parametrize("name", ["argv", "args", "wanted"])
@pytest.mark.parametrize(
    ("reads", "written"),
    [
        ("print({name}.epochs)", True),
        ("print({name}.data.folder.split('/'))", True),
        ("", False),
        ("print({name}.shape)", False),
        ("{name}.step(1)", False),
        ("print({name}.net.children())", False),
    ],
)
def test_what_nothing_makes_is_known_by_how_it_is_read(name: str, reads: str, written: bool) -> None:
    made = f"from unread import {name}\n    {reads.format(name=name)}"
    assert (f"{name}.device = accelerator.device" in converted(made, f"{name}.device")) is written


DIRECT = """\
import argparse
import yaml

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import dataset

{made}
net = nn.Linear(4, 1).to({read})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(dataset, batch_size=4)
for x, y in loader:
    loss = (net(x.to({read})) - y.to({read})).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ('table = yaml.safe_load(open("run.yaml"))', 'table["where"]'),
        ("words = argparse.ArgumentParser().parse_args()", "words.where"),
        ("words = vars(argparse.ArgumentParser().parse_args())", 'words["where"]'),
    ],
)
def test_an_option_that_a_model_is_moved_to_is_a_device_whatever_its_name_is(made: str, read: str) -> None:
    conversion = convert_source(Source.from_text(DIRECT.format(made=made, read=read), PATH))
    assert (
        f'accelerator = Accelerator(cpu=str({read}) == "cpu")\n{read} = accelerator.device'
        in conversion.new_text
    )


def test_an_option_that_is_a_type_of_numbers_is_no_device() -> None:
    made = 'table = {"where": torch.float64}'
    conversion = convert_source(Source.from_text(DIRECT.format(made=made, read='table["where"]'), PATH))
    assert 'table["where"] = ' not in conversion.new_text


def test_options_that_a_model_holds_are_not_written_to_before_there_is_a_model() -> None:
    text = """\
import torch
from dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader

from data import dataset


@dataclass
class Config:
    device: str = "cpu"


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layer = nn.Linear(1, 1).to(config.device)

    def forward(self, x):
        return self.layer(x)


def predict(model):
    return model(torch.ones(3, 1, device=model.config.device))


def train(config):
    model = Net(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(dataset, batch_size=4):
        loss = model(x.to(config.device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


predict(train(Config()))
"""
    new = convert_source(Source.from_text(text, PATH)).new_text
    assert "config.device = accelerator.device" in new
    assert "model.config.device = " not in new
