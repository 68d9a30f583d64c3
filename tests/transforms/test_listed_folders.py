"""Folders that the main process makes and all processes go into behind that."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import convert, frame

HELPER = "import os\n\n\ndef mkdirs(path):\n    if not os.path.exists(path):\n        os.makedirs(path)\n"
WAIT = "accelerator.wait_for_everyone()"
SOLVER = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from utils import mkdirs


class Solver:
    def __init__(self, folder, resume):
        self.model = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.folder = folder
        {make}
        if resume:
            self.resume()

    def make(self):
        mkdirs(self.folder)

    def resume(self):
        names = os.listdir({listed})
        print(names)

    def train(self):
        for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Solver("out", True).train()
"""


def converted(folder: Path, text: str) -> str:
    (folder / "utils.py").write_text(HELPER)
    script = folder / "train.py"
    script.write_text(text)
    found = convert_project(Source.read(script))
    assert found[0].status == "converted", found[0].reason
    return found[0].new_text


@pytest.mark.parametrize(
    "ready",
    [
        "mkdirs(folder)\nfound = os.listdir(folder)",
        "mkdirs(folder)\nfound = os.listdir('out')",
        "mkdirs(folder + '/weights')\nfound = os.listdir(folder)",
        "if not os.path.exists(folder):\n    mkdirs(folder)\nfound = os.listdir(folder)",
        "os.mkdir(folder)\nfound = os.listdir('out')",
        "mkdirs(folder)\nfound = list(Path(folder).iterdir())",
        "mkdirs(folder)\nlogging.basicConfig(filename=folder + '/log.txt')",
        "def latest(where):\n    return os.listdir(where)\n\nmkdirs(folder)\nfound = latest(folder)",
        "def make(where):\n    mkdirs(where)\n\nmake(folder)\nfound = os.listdir(folder)",
        "for one in (folder, 'logs'):\n    mkdirs(one)\nfound = os.listdir('logs')",
        "at = 'b'\nmkdirs(at)\nat = folder + '/a'\nmkdirs(at)\nsame = folder + '/a'\nfound = os.listdir(same)",
    ],
)
def test_all_wait_for_a_folder_that_they_list(tmp_path: Path, ready: str) -> None:
    imports = "import logging\nfrom pathlib import Path\nfrom utils import mkdirs"
    text = converted(tmp_path, frame(imports=imports, setup="folder = 'out'", ready=ready))
    making, rest = text.split("is_main_process", 1)
    assert WAIT in rest.split("# </ready>")[0]
    assert WAIT not in making


@pytest.mark.parametrize("make", ["mkdirs(self.folder)", "self.make()", "os.mkdir(self.folder)"])
def test_so_they_do_where_a_method_lists_it(tmp_path: Path, make: str) -> None:
    assert converted(tmp_path, SOLVER.format(make=make, listed="self.folder")).count(WAIT) == 1


WRITTEN = "def write(value, path):\n    with open(path + '.txt', 'w') as f:\n        f.write(value)\n    return value\n"


@pytest.mark.parametrize(
    "ready",
    [
        "os.makedirs(folder)\nlog = SummaryWriter(os.path.join(folder, 'log'))\nprint(log.log_dir)",
        "mkdirs(folder)\nlog = SummaryWriter(log_dir=folder + '/log')\nprint(log.log_dir)",
        "os.makedirs(args.out)\nname = 'a'\nname = os.path.join(args.out, name)\nkept = write('a', name + 'b')",
        "os.makedirs(args.out)\nkept = write('a', args)",
    ],
)
def test_all_wait_for_a_folder_that_all_write_in(tmp_path: Path, ready: str) -> None:
    (tmp_path / "tables.py").write_text(WRITTEN)
    imports = "from torch.utils.tensorboard import SummaryWriter\nfrom tables import write\nfrom utils import mkdirs"
    text = converted(tmp_path, frame(imports=imports, setup="folder, args = 'out', parse()", ready=ready))
    place = text.split("# <ready>")[1].split("# </ready>")[0]
    making = next(line for line in place.splitlines() if "(folder)" in line or "(args.out)" in line)
    assert place.split(making)[1].startswith(f"\n{WAIT}\n"), place


def test_one_process_alone_writes_in_it(tmp_path: Path) -> None:
    imports = "from torch.utils.tensorboard import SummaryWriter"
    ready = "os.makedirs(folder)\nlog = SummaryWriter(folder)\nlog.add_scalar('a', 1, 1)"
    assert WAIT not in converted(tmp_path, frame(imports=imports, setup="folder = 'out'", ready=ready))


def test_another_folder_is_not_waited_for(tmp_path: Path) -> None:
    assert WAIT not in converted(tmp_path, SOLVER.format(make="mkdirs(self.folder)", listed="'data'"))
    ready = "found = os.listdir('out')\nmkdirs('out')\nfound += os.listdir('data')"
    assert WAIT not in converted(tmp_path, frame(imports="from utils import mkdirs", ready=ready))


SAVED = "np.save(folder + '/a.npy', [1])\n"


@pytest.mark.parametrize(
    ("listed", "waits"),
    [
        ("found = os.listdir(folder)", True),
        ("found = glob.glob(os.path.join('out', '*.npy'))", True),
        ("if 'b.npy' in os.listdir(folder + '/'):\n    print(1)", True),
        ("found = os.listdir('outer')", False),
        ("for one in range(3):\n    found = os.listdir(folder)", True),
    ],
)
def test_all_wait_for_a_file_in_a_folder_that_they_list(listed: str, waits: bool) -> None:
    ready = SAVED + listed
    text = convert(imports="import glob\nimport numpy as np", setup="folder = 'out'", ready=ready).new_text
    assert (f"    {SAVED}{WAIT}\n" in text) == waits, text


def test_a_file_of_a_loop_is_not_waited_for_in_each_round() -> None:
    ready = "for i in range(3):\n    np.save(folder + f'/{i}.npy', [1])\nfound = os.listdir(folder)"
    text = convert(imports="import numpy as np", setup="folder = 'out'", ready=ready).new_text
    assert WAIT not in text.split("found =")[0]


LOG = """
import logging

def log_to(args):
    {path}
    logging.basicConfig(filename=where, filemode="w")

def main(args):
    if args.out and not os.path.exists(args.out):
        os.makedirs(args.out)
    {call}
    fit(args)
"""
FIT = """
def fit(options):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=8):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        ("where = os.path.join(args.out, 'log.txt')", True),
        ("where = os.path.join(args.out or args.old, 'log.txt')", True),
        ("where = os.path.join(args.old if args.old else args.out, 'log.txt')", True),
        (
            "where = os.path.join(args.out, 'a')\n    if args.old:\n        where = os.path.join(args.old, 'b')",
            True,
        ),
        ("where = os.path.join(args.logs or args.old, 'log.txt')", False),
        ("where = args.out + '.txt'", False),
    ],
)
def test_a_log_in_a_folder_of_the_options(tmp_path: Path, path: str, waits: bool) -> None:
    main = LOG.format(path=path, call="log_to(args)") + FIT
    text = converted(tmp_path, frame(setup=main, end="main(parse())"))
    assert (f"os.makedirs(args.out)\n    {WAIT}\n    log_to(args)" in text) == waits, text


def test_such_a_log_of_another_module(tmp_path: Path) -> None:
    log = "import logging\nimport os\n\n\ndef log_to(options):\n"
    log += "    where = os.path.join(options.out or options.old, 'log.txt')\n"
    (tmp_path / "logs.py").write_text(f"{log}    logging.basicConfig(filename=where)\n")
    main = LOG.format(path="where = 'b'", call="logs.log_to(args)") + FIT
    text = converted(tmp_path, frame(imports="import logs", setup=main, end="main(parse())"))
    assert f"os.makedirs(args.out)\n    {WAIT}\n    logs.log_to(args)" in text
