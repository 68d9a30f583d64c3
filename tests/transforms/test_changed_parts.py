"""Functions that print, and do something to the parts of a model that cannot be followed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.transforms.support import prints_by_all
from tests.transforms.test_effects_in_modules import GUARD, converted, findings

NET = """
from torch import nn
from torch.nn.utils import prune

class Masked(nn.Linear):
    def cut(self, rate):
        self.weight.data = self.weight.data * (self.weight.data.abs() > rate)

class Net(nn.Module):
    def __init__(self, masked=True):
        super().__init__()
        layer = Masked if masked else nn.Linear
        self.a, self.b = layer(4, 3), layer(3, 2)

    def forward(self, x):
        return self.b(self.a(x))

    def cut(self, rate):
{body}

def cut(net, rate):
    for name, layer in net.named_modules():
        print(name)
        prune.l1_unstructured(layer, "weight", amount=rate)
"""
BUILD = "model = Net()\n{early}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

SHOWN = {
    "lines": "for name, layer in self.named_modules():\n    print(name, layer)",
    "a summary": "for layer in self.children():\n    print(1)\n    layer.show_weights()",
    "what is given back": "for layer in self.modules():\n    size = layer.size_of()\n    print(size)",
    "of something else": "for name, layer in self.named_modules():\n    rows = []\n    rows.sort()\n    print(name)",
}
CHANGED = {
    "a method of the parts": "for name, layer in self.named_modules():\n    if name in ('a', 'b'):\n"
    "        print(name)\n        layer.cut(rate)",
    "what a library does to them": "for layer in list(self.children())[1:]:\n    print(layer)\n"
    "    prune.l1_unstructured(layer, name='weight', amount=rate)",
    "deeper": "for layer in self.modules():\n    if isinstance(layer, Masked):\n        print(layer)\n"
    "        layer.rows.cut(rate)",
}


def _converted(folder: Path, body: str, epoch: str) -> str:
    helper = NET.format(body=textwrap.indent(body, "        "))
    return converted(folder, helper, build=BUILD.format(early=""), epoch=epoch).new_text


@pytest.mark.parametrize("body", SHOWN.values(), ids=SHOWN)
def test_a_method_that_only_shows_the_parts_is_left_to_one(tmp_path: Path, body: str) -> None:
    text = _converted(tmp_path, body, "model.cut(0.5)")
    assert f"{GUARD}    accelerator.unwrap_model(model).cut(0.5)\n" in text


@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED)
def test_a_method_that_changes_the_parts_is_called_by_all(tmp_path: Path, body: str) -> None:
    text = _converted(tmp_path, body, "model.cut(0.5)")
    assert "is_main_process" not in text


def test_a_function_that_changes_the_parts_is_called_by_all(tmp_path: Path) -> None:
    body = "print(rate)"
    helper = NET.format(body=textwrap.indent(body, "        "))
    conversion = converted(tmp_path, helper, build=BUILD.format(early=""), epoch="cut(model, 0.5)\nn = 1")
    assert "is_main_process" not in conversion.new_text
    assert not findings(conversion)
    assert len(prints_by_all(conversion)) == 1
