"""Options that take no other value: the device comes where they are used, and is not written into them."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import os
from collections import namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import attrs
import torch
from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict
from torch import nn
from torch.utils.data import DataLoader

from data import dataset

{made}

net = nn.Linear(4, 1).to({read})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(dataset, batch_size=4)
for x, y in loader:
    noise = torch.randn(4, 1, device={read})
    loss = (net(x.to({read})) - y.to({read}) + noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FIELD = '    device: str = os.environ.get("PLACE", "cuda")\n'
COMPUTED = """\
class Setup:
    @property
    def device(self):
        return os.environ.get("PLACE", "cuda")
"""
SETTER = """
    @device.setter
    def device(self, value):
        os.environ["PLACE"] = str(value)
"""
MADE = "\n\nconfig = Setup()"


def converted(made: str, read: str) -> str:
    conversion = convert_source(Source.from_text(SCRIPT.format(made=made, read=read), PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion.new_text


READ_ONLY = {
    "data class": f"@dataclass(frozen=True)\nclass Setup:\n{FIELD}{MADE}",
    "its subclass": f"@dataclass(frozen=True)\nclass Base:\n{FIELD}\nclass Setup(Base):\n    pass{MADE}",
    "attrs": f"@attrs.frozen\nclass Setup:\n{FIELD}{MADE}",
    "named tuple": f"class Setup(NamedTuple):\n{FIELD}{MADE}",
    "collections": 'Setup = namedtuple("Setup", "device")\nconfig = Setup(os.environ["PLACE"])',
    "property": f"{COMPUTED}{MADE}",
    "pydantic": f"class Setup(BaseModel):\n    model_config = ConfigDict(frozen=True)\n{FIELD}{MADE}",
    "its keyword": f"class Setup(BaseModel, frozen=True):\n{FIELD}{MADE}",
    "its class": f"class Setup(BaseModel):\n    class Config:\n        frozen = True\n{FIELD}{MADE}",
    "closed": f"class Setup:\n{FIELD}{MADE}\nOmegaConf.set_readonly(config, True)",
    "frozen": f"class Setup:\n{FIELD}{MADE}\nconfig.freeze()",
}
WRITABLE = {
    "data class": f"@dataclass(frozen=False)\nclass Setup:\n{FIELD}{MADE}",
    "property": f"{COMPUTED}{SETTER}{MADE}",
    "pydantic": f"class Setup(BaseModel):\n    model_config = ConfigDict(frozen=False)\n{FIELD}{MADE}",
    "opened": f"class Setup:\n{FIELD}{MADE}\nOmegaConf.set_readonly(config, False)",
}


@pytest.mark.parametrize("made", READ_ONLY.values(), ids=READ_ONLY.keys())
def test_nothing_is_written_into_what_cannot_be_set(made: str) -> None:
    text = converted(made, "config.device")
    assert "config.device =" not in text
    assert "noise = torch.randn(4, 1, device=accelerator.device)\n" in text


def test_nor_into_a_view_of_a_dictionary() -> None:
    text = converted('config = MappingProxyType({"device": os.environ["PLACE"]})', 'config["device"]')
    assert 'config["device"] =' not in text
    assert "noise = torch.randn(4, 1, device=accelerator.device)\n" in text


def test_a_name_that_it_is_copied_to_gets_the_device() -> None:
    text = converted(f"{READ_ONLY['property']}\nplace = config.device", "place")
    assert "config.device =" not in text
    assert "place = accelerator.device\n" in text


@pytest.mark.parametrize("made", WRITABLE.values(), ids=WRITABLE.keys())
def test_what_can_be_set_is_set(made: str) -> None:
    text = converted(made, "config.device")
    assert "config.device = accelerator.device" in text
    assert "device=config.device)\n" in text
