"""A device that is told, and the CPU in its place where there is no GPU: the Accelerator's in every case."""

from __future__ import annotations

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert

PARSED = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--device', default='cuda')\n"
)
OPTION = f"{PARSED}args = parser.parse_args()"
FALLBACK = "if not torch.cuda.is_available():\n    device = {}\n"


@pytest.mark.parametrize("cpu", ["'cpu'", "torch.device('cpu')"])
@pytest.mark.parametrize("told", ["args.device"])
def test_an_option_that_says_the_cpu_is_heard(cpu: str, told: str) -> None:
    setup = f"{OPTION}\ndevice = {told}\n{FALLBACK.format(cpu)}"
    text = convert(setup=setup, end="print(torch.zeros(2, device=device))").new_text
    kind = ".device" if cpu.startswith("torch") else ".device.type"
    made = (
        f'device = {told}\naccelerator = Accelerator(cpu=str(device) == "cpu")\ndevice = accelerator{kind}\n'
    )
    assert made in text
    assert "is_available" not in text


IMPORTS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.zeros(8, 4), torch.zeros(8).long())
"""
CHOICE = "    if not torch.cuda.is_available():\n        device = 'cpu'\n"
TRAINING = """\
    model = nn.Linear(4, 2).to(device)
    noise = torch.zeros(8, 4, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device) + noise), y.to(device)).backward()
        optimizer.step()


main("cuda")
"""


@pytest.mark.parametrize(
    ("begin", "accelerator"),
    [
        (f"def main(device):\n    print('first')\n{CHOICE}", 'Accelerator(cpu=str(device) == "cpu")'),
        (
            f"def pick(device):\n{CHOICE}    return device\n\n\ndef main(told):\n    device = pick(told)\n",
            'Accelerator(cpu=str(pick(told)) == "cpu")',
        ),
    ],
)
def test_so_is_a_parameter(begin: str, accelerator: str) -> None:
    conversion = convert_source(Source.from_text(IMPORTS + begin + TRAINING, PATH), ConvertOptions())
    text = conversion.new_text
    assert f"accelerator = {accelerator}\n" in text
    assert "    device = accelerator.device.type\n" in text
    assert ("is_available" in text) == ("pick" in accelerator)  # which says what it is


@pytest.mark.parametrize(
    "chosen",
    [
        "device = 'cuda'\n" + FALLBACK.format("'cpu'"),
        "device = None\n" + FALLBACK.format("'cpu'"),
        "if not torch.cuda.is_available():\n    device = 'cpu'\n    print('no GPU')\n",
    ],
)
def test_other_choices_say_nothing_of_the_cpu(chosen: str) -> None:
    assert "str(device)" not in convert(setup=chosen, end="print(device)").new_text


OPTIONS_OF_THE_RUN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def epoch(model, loader, parts):
    for x, y in loader:
        x, y = x.to(parts["device"]), y.to(parts["device"])
        nn.functional.cross_entropy(model(x), y).backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()


def run(device):
    loader = DataLoader(TensorDataset(torch.zeros(8, 4), torch.zeros(8).long()), batch_size=2)
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = {}
    epoch(model, loader, parts)


run(torch.device("cpu"))
"""


@pytest.mark.parametrize(
    "parts", ['{"device": device, "optimizer": optimizer}', '{}\n    parts["device"] = device']
)
def test_what_is_made_after_the_accelerator_is_not_read_for_it(parts: str) -> None:
    text = OPTIONS_OF_THE_RUN.replace("parts = {}", f"parts = {parts}")
    conversion = convert_source(Source(PATH, text), ConvertOptions())
    assert conversion.status == "refused"
    assert conversion.reason
    assert conversion.new_text == text
