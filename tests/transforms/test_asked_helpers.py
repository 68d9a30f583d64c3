"""Options that decide on the device in another file than the one that makes the Accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths

MAIN = """\
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}


def main(args):
    device = {device}
    net = nn.Linear(4, 2).to(device)
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 2)), batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    main(parser.parse_args())
"""
CHOICE = '"cuda" if torch.cuda.is_available() and gpu else "cpu"'
HELPER = f"import torch\n\n\ndef get_device(gpu=True):\n    return torch.device({CHOICE})\n"
EARLY = """\
import torch


def get_device(gpu=True):
    if not gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    if torch.cuda.device_count() > 1:
        return torch.device("cuda:1")
    return torch.device("cuda")
"""
FIT = """\
import torch


class Fit:
    def __init__(self, net, loader, optimizer, config):
        self.config = config
        self.device = torch.device(self.config["device"])
        self.net = net.to(self.device)
        self.loader, self.optimizer = loader, optimizer

    def run(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            (self.net(x) - y).pow(2).mean().backward()
            self.optimizer.step()
"""
FITTED = """\
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from fit import Fit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")


def run(config):
    net = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 2)), batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    Fit(net, loader, optimizer, config).run()


if __name__ == "__main__":
    run(vars(parser.parse_args()))
"""


def converted(folder: Path, main: str, **modules: str) -> str:
    for name, text in {**modules, "train": main}.items():
        (folder / f"{name}.py").write_text(text)
    found = next(c for c in convert_paths([folder / "train.py"]) if c.source.path.name == "train.py")
    assert found.status == "converted", found.reason
    assert not found.remaining
    return found.new_text


@pytest.mark.parametrize(
    ("call", "made"),
    [
        ("get_device(gpu=not args.no_cuda)", "Accelerator(cpu=args.no_cuda)"),
        ("get_device(not args.no_cuda)", "Accelerator(cpu=args.no_cuda)"),
        ("get_device(args.gpu)", "Accelerator(cpu=not args.gpu)"),
        ("get_device()", "Accelerator()"),
        ("get_device(False)", "Accelerator(cpu=True)"),
    ],
)
@pytest.mark.parametrize(
    "helper",
    [
        HELPER,
        HELPER.replace("return torch.device", "device = torch.device") + "    return device\n",
        HELPER.replace("gpu=True", "gpu=True, quiet=True"),
        HELPER.replace(CHOICE, '"cpu" if not gpu else "cuda:0"'),
        EARLY,
    ],
)
def test_what_a_helper_is_asked_for(call: str, made: str, helper: str, tmp_path: Path) -> None:
    main = MAIN.format(imports="from tools import get_device", device=call)
    text = converted(tmp_path, main, tools=helper)
    assert f"    accelerator = {made}\n    device = accelerator.device\n" in text


def test_a_helper_that_asks_options(tmp_path: Path) -> None:
    helper = EARLY.replace("gpu=True", "options").replace("not gpu", "options.no_cuda")
    main = MAIN.format(imports="from tools import get_device", device="get_device(args)")
    assert "    accelerator = Accelerator(cpu=args.no_cuda)\n" in converted(tmp_path, main, tools=helper)


def test_a_helper_of_the_script_itself(tmp_path: Path) -> None:
    main = MAIN.format(imports=HELPER.removeprefix("import torch\n"), device="get_device(not args.no_cuda)")
    assert "    accelerator = Accelerator(cpu=args.no_cuda)\n" in converted(tmp_path, main)


BRANCHES = """\
def get_device(gpu=True):
    {doc}if {test}:
        return torch.device("{first}")
    {other}return torch.device("{second}")
"""


@pytest.mark.parametrize("other", ["", "else:\n        "])
@pytest.mark.parametrize(
    ("test", "first", "second"),
    [
        ("gpu", "cuda", "cpu"),
        ("gpu and torch.cuda.is_available()", "cuda:0", "cpu"),
        ("not gpu", "cpu", "cuda"),
    ],
)
def test_a_helper_that_returns_from_branches(
    test: str, first: str, second: str, other: str, tmp_path: Path
) -> None:
    doc = '"""Where to."""\n    '
    helper = "import torch\n\n\n" + BRANCHES.format(
        doc=doc, test=test, first=first, second=second, other=other
    )
    main = MAIN.format(imports="from tools import get_device", device="get_device(not args.no_cuda)")
    text = converted(tmp_path, main, tools=helper)
    assert "    accelerator = Accelerator(cpu=args.no_cuda)\n    device = accelerator.device\n" in text


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("options.gpu", "Accelerator(cpu=not options.gpu)"),
        ("torch.cuda.is_available()", "Accelerator()"),
        ("torch.cuda.is_available() and not options.no_cuda", "Accelerator(cpu=options.no_cuda)"),
    ],
)
def test_a_helper_that_asks_a_global_option(asked: str, made: str, tmp_path: Path) -> None:
    helper = BRANCHES.format(doc="", test=asked, first="cuda", second="cpu", other="")
    imports = f"import options\n\n\n{helper}"
    text = converted(tmp_path, MAIN.format(imports=imports, device="get_device()"))
    assert f"    accelerator = {made}\n    device = accelerator.device\n" in text


def test_a_global_option_of_another_module_is_not_known_here(tmp_path: Path) -> None:
    helper = "import options\nimport torch\n\n\n"
    helper += BRANCHES.format(doc="", test="options.gpu", first="cuda", second="cpu", other="")
    main = MAIN.format(imports="from tools import get_device", device="get_device()")
    assert "    accelerator = Accelerator()\n" in converted(tmp_path, main, tools=helper)


def test_a_helper_that_asks_for_something_else(tmp_path: Path) -> None:
    helper = HELPER.replace("and gpu", "and gpu and len(WANTED) > 1")
    main = MAIN.format(imports="from tools import get_device", device="get_device(not args.no_cuda)")
    assert "    accelerator = Accelerator()\n" in converted(tmp_path, main, tools=helper)


def test_an_entry_of_options_that_another_class_reads(tmp_path: Path) -> None:
    text = converted(tmp_path, FITTED, fit=FIT)
    assert '    accelerator = Accelerator(cpu=str(config["device"]) == "cpu")\n' in text


FLAGS = (
    "import torch\n\nUSE_CUDA = torch.cuda.is_available()\nASKED = torch.cuda.is_available() and input()\n"
)
GUARDED = (
    MAIN.replace("device = {device}\n", "pass\n")
    .replace(
        "    net = nn.Linear(4, 2).to(device)\n",
        "    net = nn.Linear(4, 2)\n    if {flag}:\n        net.cuda()\n",
    )
    .replace("x.to(device), y.to(device)", "x, y")
)


@pytest.mark.parametrize(
    ("imports", "flag"),
    [
        ("from flags import *", "USE_CUDA"),
        ("from flags import USE_CUDA", "USE_CUDA"),
        ("from flags import USE_CUDA as GPU", "GPU"),
        ("import flags", "flags.USE_CUDA"),
    ],
)
def test_a_flag_of_another_module_that_only_asks_the_machine(imports: str, flag: str, tmp_path: Path) -> None:
    text = converted(tmp_path, GUARDED.format(imports=imports, flag=flag), flags=FLAGS)
    assert "    accelerator = Accelerator()\n" in text


def test_a_flag_of_another_module_that_is_a_wish(tmp_path: Path) -> None:
    main = GUARDED.format(imports="from flags import ASKED as USE_CUDA", flag="USE_CUDA")
    assert "    accelerator = Accelerator(cpu=not USE_CUDA)\n" in converted(tmp_path, main, flags=FLAGS)
