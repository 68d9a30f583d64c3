"""Devices that are chosen above what else the script waits for: options read anew, GPUs hidden, flags set."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert

IMPORTS = "import argparse\nfrom given import load"
ARGS = "args = argparse.ArgumentParser().parse_args()"
PLAIN = 'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")'
ASKED = 'device = torch.device("cpu" if args.no_cuda else "cuda:0")'
MADE = "accelerator = Accelerator({cpu})\ndevice = accelerator.device\n"
USED = "front = nn.Linear(4, 4).to(device)"


def converted(*setup: str, ready: str = USED) -> str:
    return convert(
        imports=IMPORTS, setup="\n".join(setup), ready=ready, batch="x, y = x.to(device), y.to(device)"
    ).new_text


@pytest.mark.parametrize(
    "later", [ARGS, "config = load()", "seed = 1\nargs = load()", "if args.more:\n    args = load()"]
)
def test_the_accelerator_is_made_where_the_device_is_chosen(later: str) -> None:
    first = [ARGS] if "args.more" in later else []
    text = converted(*first, PLAIN, later)
    assert MADE.format(cpu="") + later in text
    assert text.count("device = ") == 1


def test_options_that_are_read_anew_behind_it() -> None:
    text = converted(ARGS, ASKED, "data, args = load(args)")
    assert f"{ARGS}\n{MADE.format(cpu='cpu=args.no_cuda')}data, args = load(args)\n" in text


@pytest.mark.parametrize(
    ("setup", "cpu"),
    [
        ((ARGS, ASKED, "args.cuda = not args.no_cuda"), "cpu=args.no_cuda"),
        ((PLAIN, "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"), ""),
        ((PLAIN, ARGS, "if args.cpu:\n    device = torch.device('cpu')"), "cpu=args.cpu"),
    ],
)
def test_a_device_chosen_above_it_is_the_accelerators_behind_it(setup: tuple[str, ...], cpu: str) -> None:
    text = converted(*setup)
    made = MADE.format(cpu=cpu)
    assert text.index(made) > text.index(setup[0])
    assert f"\n{USED}\n" in text


TRAINER = f"""\
import argparse, os, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Trainer:
    def __init__(self, args):
        {PLAIN}
        os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
        self.front = nn.Linear(4, 4).to(device)
        self.model = nn.Linear(4, 2).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        self.loader = DataLoader(data, batch_size=8)

    def run(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.front(x)), y).backward()
            self.optimizer.step()

def main():
    {ARGS}
    Trainer(args).run()

main()
"""


def test_nobody_reads_it_any_more() -> None:
    """It only moved what prepare places."""
    assert "accelerator.device" not in converted(PLAIN, "os.environ['CUDA_VISIBLE_DEVICES'] = '1'", ready="")


def test_in_a_constructor() -> None:
    text = convert_source(Source.from_text(TRAINER, PATH)).new_text
    assert "        self.accelerator = Accelerator()\n        device = self.accelerator.device\n" in text


OPTION = "args.device = torch.device('cpu' if args.no_cuda else 'cuda:0')"
LATER = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"
FRONT = "class Front:\n    def __init__(self, given):\n        self.given = given\n"
READING = f"{FRONT}        self.device = {{read}}\n"


@pytest.mark.parametrize(
    ("front", "ready", "set_again"),
    [
        ("", "start = torch.zeros(3).to(args.device)", True),
        (READING.format(read="given.device"), "front = Front(args)", True),
        (FRONT + "    def place(self):\n        return self.given.device\n", "front = Front(args)", True),
        (READING.format(read="1"), "front = Front(args)", True),
        ("", "print(args)", False),
    ],
)
def test_an_option_that_holds_a_device_chosen_above_it(front: str, ready: str, set_again: bool) -> None:
    """Who reads it where it is handed on may be out of sight."""
    text = converted(ARGS, front, OPTION, LATER, ready=ready)
    made = "accelerator = Accelerator(cpu=args.no_cuda)\n"
    assert text.index(LATER) < text.index(made)
    assert (f"{made}args.device = accelerator.device\n" in text) == set_again


@pytest.mark.parametrize(
    "moved", ["model.to(host)", "model = model.to(host)", "model.to(device=host)", "back = model.to(host)"]
)
def test_a_model_that_goes_to_the_cpu_in_the_end_leaves_it_the_cpu(moved: str) -> None:
    setup = f'{PLAIN}\nhost = torch.device("cpu")'
    end = f"{moved}\nrows = model(data.tensors[0].to(host)).detach().to(host).numpy()"
    found = convert(setup=setup, ready="model.to(device)", end=end)
    assert 'host = torch.device("cpu")' in found.new_text
    assert moved in found.new_text
    assert "keeps parts of" not in "".join(f.message for f in found.remaining)
