"""Options that a class reads off itself: told by the names that the Accelerator's place has for them."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

SCRIPT = """\
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, {parameter}, model, loader):
        {keep}
        self.model = model
        {place}
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            {move}
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(torch.ones(2, device={where}))


def main():
    parser = argparse.ArgumentParser()
    {read}
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8)
    Trainer({given}, nn.Linear(4, 3), loader).train()


main()
"""
TO_DEVICE = {
    "parameter": "args",
    "keep": "self.args = args",
    "place": "self.model.to(self.args.device)",
    "move": "x, y = x.to(self.args.device), y.to(self.args.device)",
    "where": "self.args.device",
    "read": "args = parser.parse_args()",
    "given": "args",
}
COPIED = {
    **TO_DEVICE,
    "keep": "self.device = args.device",
    "place": "self.model.to(self.device)",
    "move": "x, y = x.to(self.device), y.to(self.device)",
    "where": "self.device",
}
TO_GPU = {
    **TO_DEVICE,
    "place": "if self.args.cuda: self.model.cuda()",
    "move": "if self.args.cuda: x, y = x.cuda(), y.cuda()",
    "where": '"cpu"',
}
FLAG_COPIED = {key: text.replace("self.args.cuda", "self.cuda") for key, text in TO_GPU.items()}
OTHER_NAME = {"read": "conf = parser.parse_args()", "given": "conf"}
NO_NAME = {"read": "pass", "given": "parser.parse_args()"}
SET = '    accelerator = Accelerator(cpu=str({0}.device) == "cpu")\n    {0}.device = accelerator.device\n'


def converted(parts: dict[str, str]) -> Conversion:
    conversion = convert_source(Source.from_text(SCRIPT.format(**parts), PATH), ConvertOptions())
    assert conversion.status == "converted", conversion.reason
    return conversion


@pytest.mark.parametrize(
    ("parts", "made"),
    [
        (TO_DEVICE, SET.format("args")),
        (TO_DEVICE | OTHER_NAME, SET.format("conf")),
        (COPIED, SET.format("args")),
        (COPIED | OTHER_NAME, SET.format("conf")),
        (COPIED | {"keep": "self.args, self.device = args, args.device"}, SET.format("args")),
        (COPIED | {"keep": "self.device: str = args.device"}, SET.format("args")),
        (COPIED | {"keep": "self.args = args\n        self.device = self.args.device"}, SET.format("args")),
        (
            COPIED | {"parameter": "where", "keep": "self.device = where", "given": "args.device"},
            SET.format("args"),
        ),
        (TO_GPU, "    accelerator = Accelerator(cpu=not args.cuda)\n"),
        (TO_GPU | OTHER_NAME, "    accelerator = Accelerator(cpu=not conf.cuda)\n"),
        (
            FLAG_COPIED | {"keep": "self.cuda = args.cuda"},
            "    accelerator = Accelerator(cpu=not args.cuda)\n",
        ),
    ],
)
def test_an_option_is_told_by_the_name_that_it_has_there(parts: dict[str, str], made: str) -> None:
    conversion = converted(parts)
    assert made in conversion.new_text
    assert "ACC410" not in codes(conversion)


@pytest.mark.parametrize("parts", [TO_DEVICE, COPIED, TO_GPU])
def test_what_has_no_name_there_is_said(parts: dict[str, str]) -> None:
    conversion = converted(parts | NO_NAME)
    assert "    accelerator = Accelerator()\n" in conversion.new_text
    assert "ACC410" in codes(conversion)


@pytest.mark.parametrize(
    ("given", "said"), [("torch.cuda.is_available()", False), ("parser.parse_args().cuda", True)]
)
def test_what_only_asks_the_machine_is_no_option_where_it_is_handed_on(given: str, said: bool) -> None:
    parts = FLAG_COPIED | {"parameter": "cuda", "keep": "self.cuda = cuda", "given": given, "read": "pass"}
    conversion = converted(parts)
    assert "    accelerator = Accelerator()\n" in conversion.new_text
    assert ("ACC410" in codes(conversion)) == said


def test_a_copy_of_an_option_without_a_name_gets_the_device() -> None:
    assert "self.device = self.accelerator.device\n" in converted(COPIED | NO_NAME).new_text


def test_a_copy_that_is_read_as_text_stays_text() -> None:
    parts = COPIED | {
        "place": "self.model.to(self.device)\n        print('GPU' if self.device == 'cuda' else '')"
    }
    assert "    args.device = accelerator.device.type\n" in converted(parts).new_text


def test_a_copy_in_a_function_is_followed_too() -> None:
    text = """\
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

args = argparse.ArgumentParser().parse_args()
device = args.device
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device)) + torch.zeros(1, device=device).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    conversion = convert_source(Source.from_text(text, PATH), ConvertOptions())
    made = 'accelerator = Accelerator(cpu=str(args.device) == "cpu")\nargs.device = accelerator.device\n'
    assert f"{made}device = args.device\n" in conversion.new_text
