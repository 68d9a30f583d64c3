"""Models whose base class is of a package that is not there, in scripts that are written for several processes."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

MODEL = """
from torch import nn
from framework.models import Base
class Encoder(Base):
    def make(self):
        return nn.Linear(4, 4)
class Net(Encoder):
    def __init__(self):
        super().__init__()
        self.first = self.make()
        self.last = nn.Linear(4, 1)
    def forward(self, x):
        return self.last(self.first(x))
class Noise(Base):
    def forward(self, x):
        return x * 2
"""
LOOP = """
for x, y in loader:
    accelerator.backward(F.mse_loss({call}, y))
    opt.step()
    opt.zero_grad()
"""
PREPARED = """
accelerator = Accelerator()
noise = Noise()
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
{prepared}
"""
ALL = "net, opt, loader = accelerator.prepare(net, opt, loader)"


BASES = {
    "from framework.models import Base": "Base",
    "from framework.models import Base, Saved": "Base, Saved",
    "from diffusers.models.modeling_utils import Base\nfrom diffusers.configuration_utils import Saved": "Saved, Base",
    "from abc import ABC\nfrom transformers.modeling_utils import Base": "ABC, Base",
    "from huggingface_hub import PyTorchModelHubMixin as Saved\nBase = nn.Module": "Saved, Base",
}


@pytest.mark.parametrize("imports", BASES)
@pytest.mark.parametrize("prepared", ["net, opt, loader", "opt, loader"])
def test_a_base_of_which_nothing_is_known_is_a_model_in_any_package(imports, prepared, tmp_path):
    model = MODEL.replace("from framework.models import Base", imports).replace(
        "(Base)", f"({BASES[imports]})"
    )
    made = PREPARED.format(prepared=f"{prepared} = accelerator.prepare({prepared})")
    frozen = """
encoder = torch.nn.Linear(4, 4)
encoder.requires_grad_(False)
for x, y in loader:
    with torch.no_grad():
        x = encoder(noise(x))
    accelerator.backward(F.mse_loss(net(x), y))
    opt.step()
    opt.zero_grad()
"""
    line = "opt.step()"
    found = named(model + made + frozen, tmp_path, "accelerate")
    assert [one for one in found if one[1] == line] == [("ACC705", line)] * ("net" not in prepared)
    assert found == [] or "net" not in prepared


@pytest.mark.parametrize("call", ["net(x)", "net(noise(x))", "net.forward(x)"])
def test_parts_of_a_prepared_model_of_an_unknown_base_are_prepared(call, tmp_path):
    text = MODEL + PREPARED.format(prepared=ALL) + LOOP.format(call=call)
    assert named(text, tmp_path, "accelerate") == []


def test_parts_of_a_wrapped_model_of_an_unknown_base_are_wrapped(tmp_path):
    made = """
dist.init_process_group("gloo")
net = DDP(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
for x, y in loader:
    F.mse_loss(net(x), y).backward()
    opt.step()
    opt.zero_grad()
"""
    assert named(MODEL + made, tmp_path) == []


def test_one_that_is_not_prepared_is_named_once(tmp_path):
    prepared = PREPARED.format(prepared="opt, loader = accelerator.prepare(opt, loader)")
    text = MODEL + prepared + LOOP.format(call="net(x)")
    line = "opt.step()"
    assert named(text, tmp_path, "accelerate").count(("ACC705", line)) == 1


def test_a_model_without_a_wrapper_is_said_once(tmp_path):
    made = """
dist.init_process_group("gloo")
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    F.mse_loss(net(x), y).backward()
    opt.step()
    opt.zero_grad()
"""
    assert named(made, tmp_path) == [("ACC705", "opt.step()")]


BUILT = """
from registry_of_models import MODELS

accelerator = Accelerator()
model, loader = MODELS.build("net"), MODELS.loader()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, loader)
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(CALLED, y))
    opt.step()
accelerator.print(loader.size)
"""


def test_a_method_of_a_model_that_an_unread_package_makes(tmp_path):
    """What has parameters is a model, and has a wrapper after prepare; a loader has none."""
    text = BUILT.replace("CALLED", "model.decode(x)")
    assert ("ACC715", "accelerator.backward(F.mse_loss(model.decode(x), y))") in named(
        text, tmp_path, "accelerate"
    )
    assert named(BUILT.replace("CALLED", "model(x)"), tmp_path, "accelerate") == []


@pytest.mark.parametrize(
    ("head", "is_entered"),
    [
        ("class Base:", True),
        ("class Base(Generic[M], metaclass=ABCMeta):", True),
        ("class Base(metaclass=Table):", False),
    ],
)
def test_a_base_that_is_chosen_by_a_type_is_that_class(head, is_entered, tmp_path):
    text = f"""
from abc import ABCMeta
from typing import Generic, TypeVar

M = TypeVar("M")

class Table(type):
    def __getitem__(cls, name):
        return registry[name]

{head}
    def begin(self):
        self.end(True)

class Trainer(Base[M]):
    def end(self, is_called=False):
        if is_called:
            print("entered")

dist.init_process_group("gloo")
Trainer().begin()
"""
    assert (("ACC702", 'print("entered")') in named(text, tmp_path)) is is_entered
