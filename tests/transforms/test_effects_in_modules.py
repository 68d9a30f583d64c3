"""Files, folders and pictures that functions of other modules make."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, frame, place_of, prints_by_all

HEAD = """
import csv, json, os, random, sys, time
import numpy as np
import torch
import matplotlib.pyplot as plt
from PIL import Image
from torch.utils.tensorboard import SummaryWriter
"""
GUARD = "if accelerator.is_main_process:\n    "


def converted(folder: Path, helper: str, **snippets: str) -> Conversion:
    """A script beside `helper.py`, converted; only the script changes."""
    (folder / "helper.py").write_text(HEAD + textwrap.dedent(helper))
    snippets["imports"] = "import helper\nfrom helper import *\n" + snippets.get("imports", "")
    (folder / "train.py").write_text(frame(**snippets))
    (conversion,) = convert_project(Source.read(folder / "train.py"))
    assert conversion.status == "converted", conversion.reason
    return conversion


def findings(conversion: Conversion, code: str = "ACC210") -> list[str]:
    return [f.message for f in conversion.remaining if f.code == code]


WRITES = {
    "np.save": "def keep(x, path):\n    np.save(path, x)\n",
    "picture": "def keep(x, path):\n    image = Image.fromarray(x.numpy())\n    image.save(path)\n",
    "plot": "def keep(x, path):\n    figure = plt.figure()\n    plt.plot(x)\n    figure.savefig(path)\n",
    "shell": "import subprocess\n\n\ndef keep(x, path):\n    run = 'convert ' + str(x) + ' ' + path\n"
    "    subprocess.call(run, shell=True)\n",
    "through another": "def write(x, p):\n    with open(p, 'w') as f:\n        json.dump(x, f)\n\n\n"
    "def keep(x, path):\n    write(x, path)\n",
    "of a changed copy": "def keep(x, path):\n    np.save(path, np.insert(x, 0, 0))\n",
    "of a copy under the same name": "def keep(x, path):\n    x = x.clone()\n    x[0] = 1\n    np.save(path, x)\n",
    "of a copy that a branch makes": "def keep(x, path, boxes=None):\n    if boxes is not None:\n"
    "        boxes = np.array(boxes, dtype=int)\n        for n in range(2):\n            boxes[:, n] -= boxes[:, 0]\n"
    "    np.save(path, x)\n",
    "of a copy in other numbers": "def keep(x, path):\n    print(x)\n    x = x.astype('int8')\n    x[0] = 1\n"
    "    np.save(path, x)\n",
    "of what a generator yields": "def lines(path):\n    for line in open(path):\n        yield float(line)\n\n\n"
    "def keep(x, path):\n    np.save(path, x + np.array([n for n in lines('more')]))\n",
    "of a list cut down": "def keep(x, path):\n    kept = []\n    kept = kept[1:]\n    kept.append(x)\n"
    "    np.save(path, kept)\n",
    "settings of a picture": "def keep(x, path):\n    plt.rcParams.update({'font.size': 9})\n"
    "    plt.rcParams['font.size'] = 9\n    plt.savefig(path)\n",
    "sound": "import soundfile\n\n\ndef keep(x, path):\n    soundfile.write(path, x, 8000)\n",
    "remove": "def keep(x, path):\n    if os.path.exists(path):\n        os.remove(path)\n",
    "bar": "_last = time.time()\n_begin = _last\n\n\ndef keep(i, n):\n    global _last\n    sys.stdout.write('x')\n"
    "    _last = time.time()\n",
}


@pytest.mark.parametrize("helper", WRITES.values(), ids=WRITES)
def test_the_main_process_calls_it(tmp_path: Path, helper: str) -> None:
    setup = "device = torch.device('cpu')"
    conversion = converted(tmp_path, helper, setup=setup, epoch="keep(x, 'a')\nn = 1\nhelper.keep(x, 'b')")
    expected = f"{GUARD}keep(x, 'a')\nn = 1\n{GUARD}helper.keep(x, 'b')"
    assert place_of(conversion.new_text, "epoch") == expected
    assert not findings(conversion)


TIED = {
    "it changes what it is given": "def keep(x, path):\n    np.save(path, x)\n    x[0] = 1\n",
    "it begins what it is given anew": "def keep(x, path):\n    np.save(path, x.value())\n    x.reset()\n",
    "it changes a part of what it is given": "def keep(x, path):\n    for g in x.groups:\n        g['a'] = 1\n"
    "    np.save(path, x)\n",
    "it changes a piece of what it is given": "def keep(x, path):\n    y = x[1:]\n    y.clear()\n"
    "    np.save(path, y)\n",
    "it changes what it is given before it copies it": "def keep(x, path):\n    x[0] = 1\n    x = x.clone()\n"
    "    np.save(path, x)\n",
    "it copies what it is given in another branch": "def keep(x, path):\n    if path:\n        x = np.array(x)\n"
    "    else:\n        x[0] = 1\n    np.save(path, x)\n",
    "it copies what it is given at times": "def keep(x, path):\n    if path:\n        x = np.array(x)\n"
    "    x[0] = 1\n    np.save(path, x)\n",
    "it asks for a copy where one is needed": "def keep(x, path):\n    x = np.array(x, copy=False)\n"
    "    x[0] = 1\n    np.save(path, x)\n",
    "it changes what lies in a copy": "def keep(x, path):\n    x = list(x)\n    x[0].zero_()\n    np.save(path, x)\n",
    "it changes what it is given by a function": "def keep(x, path):\n    np.save(path, torch.relu_(x))\n",
    "it calls a model of its own": "NET = torch.nn.Linear(4, 2)\n\n\ndef keep(x, path):\n"
    "    np.save(path, NET(x))\n",
    "it draws random numbers": "def keep(x, path):\n    np.save(path, np.random.rand(3))\n",
    "it sets a global that is read": "STEP = 0\n\n\ndef step():\n    return STEP\n\n\ndef keep(x, path):\n"
    "    global STEP\n    STEP = 1\n    np.save(path, x)\n",
    "it changes what all read": "def keep(x, path):\n    np.save(path, x)\n    os.environ['A'] = path\n",
    "it yields values": "def keep(x, path):\n    np.save(path, x)\n    yield x\n",
    "a generator draws random numbers": "def draw():\n    yield 1\n    np.random.rand(3)\n\n\n"
    "def keep(x, path):\n    np.save(path, x + np.array([n for n in draw()]))\n",
    "it ends the run": "def keep(x, path):\n    np.save(path, x)\n    sys.exit()\n",
}


@pytest.mark.parametrize("helper", TIED.values(), ids=TIED)
def test_what_all_processes_need_is_only_said(tmp_path: Path, helper: str) -> None:
    conversion = converted(tmp_path, helper, epoch="keep(x, 'a')")
    assert place_of(conversion.new_text, "epoch") == "keep(x, 'a')"
    (message,) = findings(conversion)
    assert "this call writes files (numpy.save in helper.py, line " in message


FIELDS = """
def note(path, record=None, **fields):
    if record is None:
        record = {}
    fields['n'] = 1
    record.update(fields)
    with open(path, 'a') as file:
        file.write(str(record))


def keep(path, kept=None):
    note(path, kept, n=2)


class Log:
    def __init__(self, path):
        self.path = path

    def log(self, record=None, **fields):
        record = record or {}
        record.update(fields)
        with open(self.path, 'a') as file:
            file.write(str(record))
"""


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("note('a', n=3)", ""),
        ("note('a', **{'n': 3})", "record"),
        ("note('a', {}, n=3)", "record"),
        ("note('a', record=seen)", "record"),
        ("keep('a')", "record"),
        ("Log('a').log(n=3)", ""),
        ("Log('a').log(seen, n=3)", "record"),
    ],
)
def test_a_parameter_is_changed_where_a_call_hands_something_over(
    tmp_path: Path, call: str, reason: str
) -> None:
    conversion = converted(tmp_path, FIELDS, epoch=call, ready="seen = {}")
    assert place_of(conversion.new_text, "epoch") == (call if reason else GUARD + call)
    assert [f"it changes `{reason}`" in message for message in findings(conversion)] == (
        [True] if reason else []
    )


def test_what_sound_and_a_function_of_a_library_are_called(tmp_path: Path) -> None:
    helper = "import soundfile\n\n\ndef keep(x, path):\n    soundfile.write(path, x, 8000)\n    return path\n"
    assert (
        "this call writes files (soundfile.write"
        in findings(converted(tmp_path, helper, epoch="p = keep(x, 'a')"))[0]
    )
    helper = "def keep(x, path):\n    np.save(path, torch.relu_(x))\n"
    assert "it changes `x`" in findings(converted(tmp_path, helper, epoch="keep(x, 'a')"))[0]


def test_functions_that_write_nothing_stay(tmp_path: Path) -> None:
    helper = "def look(x):\n    with open('a.txt') as f:\n        return f.read()\n\n\n"
    helper += "def seed(n):\n    random.seed(n)\n\n\ndef rows(table):\n    return table.to_csv()\n"
    # A memory of tensors is no log: a log is told one thing at a time.
    helper += "\n\ndef note(memory, x):\n    memory.write(x, x + 1, 0.5)\n"
    epoch = "look(x)\nseed(1)\nr = rows(x)\nnote(r, x)"
    conversion = converted(tmp_path, helper, epoch=epoch)
    assert place_of(conversion.new_text, "epoch") == epoch
    assert not findings(conversion)


LAYERS = """
class Mixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, a, b):
        return self.lin(a + b)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.write, self.save = Mixer(), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.save(self.write(x, x))
"""


def test_a_layer_may_be_called_what_a_file_s_method_is_called(tmp_path: Path) -> None:
    ready = "slow = Net()\nwith torch.no_grad():\n    out = slow(data.tensors[0])"
    conversion = converted(tmp_path, LAYERS, ready=ready)
    assert place_of(conversion.new_text, "ready") == ready
    assert not findings(conversion)


def test_what_is_written_to_memory_is_written_nowhere(tmp_path: Path) -> None:
    helper = (
        "import io\n\n\ndef fetch(n):\n    handle = io.BytesIO()\n    handle.write(n)\n    return handle\n"
    )
    conversion = converted(tmp_path, helper, epoch="handle = fetch(1)")
    assert not findings(conversion)


@pytest.mark.parametrize("path", ["os.devnull", "'/dev/null'", "file=os.devnull"])
def test_what_is_opened_to_be_thrown_away_is_no_file(tmp_path: Path, path: str) -> None:
    helper = f"def rows(x, verbose=False):\n    f = sys.stderr if verbose else open({path}, mode='w')\n"
    helper += "    return x, f\n"
    conversion = converted(tmp_path, helper, epoch="a = rows(x)\nrows(x, True)")
    assert place_of(conversion.new_text, "epoch") == "a = rows(x)\nrows(x, True)"
    assert not findings(conversion)


def test_a_batch_of_a_shared_loader_is_read_by_all_processes(tmp_path: Path) -> None:
    """The processes meet where a pass begins: one that is alone in it would wait for the others."""
    helper = "def keep(x, path):\n    np.save(path, x)\n"
    conversion = converted(tmp_path, helper, epoch="keep(next(iter(loader))[0], 'a.npy')")
    assert place_of(conversion.new_text, "epoch") == "keep(next(iter(loader))[0], 'a.npy')"
    assert "a pass over a loader that they share begins in it" in findings(conversion)[0]


MAKER = """
class Maker:
    def collect(self, path):
        self.names = sorted(os.listdir(path))
        print(len(self.names))
    def check(self):
        self.first = self.names[0]
        print(self.first)
    def cut(self, name):
        self.year = name[: len(self.first)]
    def run(self):
        self.cut(self.names[0])
        np.save(self.year, np.arange(3))
"""


def test_what_a_method_that_all_processes_run_reads_is_set_on_all_of_them(tmp_path: Path) -> None:
    """`check` sets what `cut` reads, which shows nothing: all processes run it, and need what it reads itself."""
    conversion = converted(
        tmp_path, MAKER, epoch="maker = Maker()\nmaker.collect('.')\nmaker.check()\nmaker.run()"
    )
    expected = f"maker = Maker()\nmaker.collect('.')\nmaker.check()\n{GUARD}maker.run()"
    assert place_of(conversion.new_text, "epoch") == expected


def test_what_is_used_is_only_said(tmp_path: Path) -> None:
    helper = "def keep(x):\n    np.save('x', x)\n    return 'x'\n"
    conversion = converted(tmp_path, helper, epoch="path = keep(x)")
    assert place_of(conversion.new_text, "epoch") == "path = keep(x)"
    assert "its result is used" in findings(conversion)[0]


def test_data_made_before_the_training_is_waited_for(tmp_path: Path) -> None:
    helper = "def make(path):\n    np.save(path, np.zeros(3))\n"
    conversion = converted(tmp_path, helper, setup="device = torch.device('cuda')\nmake('a.npy')")
    expected = f"accelerator = Accelerator()\ndevice = accelerator.device\n{GUARD}make('a.npy')\n"
    assert place_of(conversion.new_text, "setup") == expected + "accelerator.wait_for_everyone()"


def test_missing_folders_are_made_by_the_main_process_first(tmp_path: Path) -> None:
    helper = "def folder(name):\n    if not os.path.exists(name):\n        os.makedirs(name)\n    return name\n\n\n"
    helper += "def other(name):\n    os.makedirs(name, exist_ok=True)\n    return name\n"
    conversion = converted(tmp_path, helper, ready="a = folder('a')\nb = other('b')")
    expected = "with accelerator.main_process_first():\n    a = folder('a')\nb = other('b')"
    assert place_of(conversion.new_text, "ready") == expected


def test_a_function_that_runs_the_model_is_not_run_in_turns(tmp_path: Path) -> None:
    """The processes meet in the forward of a model that is trained: one that waits for the others would hang them."""
    helper = (
        "def score(net, name):\n    if not os.path.exists(name):\n        os.makedirs(name)\n"
        "    return net(torch.ones(1, 4)).mean()\n"
    )
    conversion = converted(tmp_path, helper, epoch="a = score(model, 'a')")
    assert "main_process_first" not in conversion.new_text
    assert len(findings(conversion)) == 1


def test_a_folder_that_only_one_can_make(tmp_path: Path) -> None:
    helper = "def start():\n    name = time.strftime('%H%M%S')\n    os.mkdir(name)\n    return name\n"
    conversion = converted(tmp_path, helper, ready="name = start()")
    assert "where one has made its folder, the others can fail" in findings(conversion)[0]


def test_a_model_is_handed_over_unwrapped(tmp_path: Path) -> None:
    helper = "def keep(net, path):\n    torch.save({'net': net.state_dict()}, path)\n"
    conversion = converted(tmp_path, helper, epoch="keep(model, 'a')")
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}keep(accelerator.unwrap_model(model), 'a')"


def test_a_method_of_the_model_is_called_past_its_wrapper(tmp_path: Path) -> None:
    """The wrapper runs a method as one of its forwards, for which the ranks may meet."""
    helper = (
        "class Net(torch.nn.Linear):\n    def log(self, path):\n        with open(path, 'a') as f:\n"
        "            f.write('done')\n"
    )
    build = "model = Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    conversion = converted(tmp_path, helper, build=build, epoch="model.log('a')")
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}accelerator.unwrap_model(model).log('a')"


def test_a_model_that_draws_a_picture(tmp_path: Path) -> None:
    helper = (
        "def draw(net, path):\n    with torch.no_grad():\n        plt.imsave(path, net(torch.zeros(1, 4)))\n"
    )
    conversion = converted(tmp_path, helper, epoch="draw(model, 'a')")
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}draw(accelerator.unwrap_model(model), 'a')"


LOG = """
class Log:
    def __init__(self, path):
        self.file = open(path, 'w')
        self.rows = 0

    def row(self, x):
        self.file.write(str(x))
        self.rows += 1

    def close(self):
        self.file.close()
"""


def test_an_object_that_keeps_a_file(tmp_path: Path) -> None:
    conversion = converted(tmp_path, LOG, ready="log = Log('a')", epoch="log.row(1)", end="log.close()")
    assert place_of(conversion.new_text, "ready") == "log = Log('a') if accelerator.is_main_process else None"
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}log.row(1)"
    assert place_of(conversion.new_text, "end") == f"{GUARD}log.close()"
    assert not findings(conversion)


def test_an_object_that_is_read_is_there_on_every_process(tmp_path: Path) -> None:
    conversion = converted(tmp_path, LOG, ready="log = Log('a')", epoch="log.row(1)", end="n = log.rows + 1")
    assert place_of(conversion.new_text, "ready") == "log = Log('a')"
    assert place_of(conversion.new_text, "epoch") == "log.row(1)"
    assert findings(conversion, "ACC204")


def test_a_writer_that_another_module_makes(tmp_path: Path) -> None:
    helper = "def make(folder):\n    return SummaryWriter(folder)\n\n\n"
    helper += "def draw(writer, x):\n    writer.add_image('x', x)\n"
    conversion = converted(
        tmp_path, helper, ready="writer = make('a')", epoch="writer.add_scalar('x', 1)\ndraw(writer, x)"
    )
    assert (
        place_of(conversion.new_text, "ready")
        == "writer = make('a') if accelerator.is_main_process else None"
    )
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}writer.add_scalar('x', 1)\n    draw(writer, x)"


def test_a_download_in_another_module(tmp_path: Path) -> None:
    helper = "import torchvision\n\n\ndef load(root):\n    return torchvision.datasets.MNIST(root, download=True)\n"
    conversion = converted(tmp_path, helper, ready="extra = load('a')")
    expected = "with accelerator.main_process_first():\n    extra = load('a')"
    assert place_of(conversion.new_text, "ready") == expected


@pytest.mark.parametrize("given", ["", ", download=True", ", download=False"])
def test_a_data_set_that_downloads_in_its_base_class(tmp_path: Path, given: str) -> None:
    helper = """
    import torchvision
    def load(root, download=True):
        base = torchvision.datasets.CIFAR10(root, download=download)
        return base, Labeled(root, download=download)
    class Labeled(torchvision.datasets.CIFAR10):
        def __init__(self, root, train=True, download=False):
            super().__init__(root, train=train, download=download)
    """
    line = f"extra = load('a'{given})"
    conversion = converted(tmp_path, helper, ready=line)
    guard = "with accelerator.main_process_first():\n    " if "False" not in given else ""
    assert place_of(conversion.new_text, "ready") == f"{guard}{line}"
    conversion = converted(
        tmp_path, helper, ready="extra = Labeled('a')\nother = Labeled('a', download=True)"
    )
    expected = "extra = Labeled('a')\nwith accelerator.main_process_first():\n    other = Labeled('a', download=True)"
    assert place_of(conversion.new_text, "ready") == expected


def test_a_writer_s_subclass(tmp_path: Path) -> None:
    helper = """
    class Board(SummaryWriter):
        def __init__(self, folder):
            super().__init__(folder)

        def losses(self, x):
            self.add_scalar('loss', x)
    """
    conversion = converted(
        tmp_path, helper, ready="board = Board('a')", epoch="board.losses(1)\nboard.add_scalar('x', 1)"
    )
    assert (
        place_of(conversion.new_text, "ready")
        == "board = Board('a') if accelerator.is_main_process else None"
    )
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}board.losses(1)\n    board.add_scalar('x', 1)"


def test_each_writer_by_itself(tmp_path: Path) -> None:
    """One that is handed to a function that all processes have to call is there on all of them."""
    helper = "def score(writer, x):\n    writer.add_scalar('x', 1)\n    return 1\n"
    ready = "one = SummaryWriter('a')\nother = SummaryWriter('b')"
    conversion = converted(tmp_path, helper, ready=ready, epoch="one.add_scalar('x', 1)\nn = score(other, x)")
    assert place_of(conversion.new_text, "ready") == (
        "one = SummaryWriter('a') if accelerator.is_main_process else None\nother = SummaryWriter('b')"
    )
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}one.add_scalar('x', 1)\nn = score(other, x)"


def test_what_is_only_made_where_it_is_missing(tmp_path: Path) -> None:
    helper = """
    def table(path):
        if not os.path.exists(path):
            np.save(path, np.zeros(3))
        return np.load(path)

    def numbered(path):
        n = len(os.listdir(path))
        if not os.path.exists(path + str(n)):
            os.makedirs(path + str(n))
        return n
    """
    conversion = converted(tmp_path, helper, ready="a = table('a')\nn = numbered('b')")
    expected = "with accelerator.main_process_first():\n    a = table('a')\n"
    expected += "n = broadcast_object_list([numbered('b') if accelerator.is_main_process else None])[0]"
    assert place_of(conversion.new_text, "ready") == expected


LOGGED = """
class Notes:
    def __init__(self, path):
        self.path, self.rows = path, []
        self.file = open(path, 'a')

    def note(self, x, again=False):
        self.file.write(x)
        if again:
            self.file.close()
            self.file = open(self.path, 'a')
"""


def test_a_file_that_is_opened_again(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path, LOGGED, ready="notes = Notes('a')\nnotes.note('x')", end="print(1, file=notes.file)"
    )
    assert place_of(conversion.new_text, "ready") == f"notes = Notes('a')\n{GUARD}notes.note('x')"
    assert findings(conversion, "ACC204")


def test_a_writer_of_a_trainer_is_closed_by_who_made_it() -> None:
    text = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


class Trainer:
    def __init__(self):
        self.writer = SummaryWriter('runs')
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(TensorDataset(torch.randn(20, 3)), batch_size=4)

    def fit(self):
        for (x,) in self.loader:
            self.model(x).mean().backward()
            self.optimizer.step()


def main():
    trainer = Trainer()
    trainer.fit()
    trainer.writer.close()


main()
"""
    conversion = convert_source(Source.from_text(text, PATH))
    assert (
        "self.writer = SummaryWriter('runs') if self.accelerator.is_main_process else None"
        in conversion.new_text
    )
    assert (
        "    if trainer.accelerator.is_main_process:\n        trainer.writer.close()" in conversion.new_text
    )


def test_a_logger_that_another_module_makes(tmp_path: Path) -> None:
    helper = "import logging\n\n\ndef make(name):\n    return logging.getLogger(name)\n"
    conversion = converted(
        tmp_path, helper, setup="device = torch.device('cuda')\nlogger = make('a')", epoch="logger.info('x')"
    )
    assert "import logging\n" in conversion.new_text
    assert "    logging.disable(logging.INFO)\n" in conversion.new_text


def test_data_made_under_a_test_of_one_process_is_only_said(tmp_path: Path) -> None:
    """Not every process is sure to come there, so that waiting could hang."""
    helper = "def make(path):\n    np.save(path, np.zeros(3))\n"
    snippet = "if torch.rand(1).item() > 0.5:\n    make('a.npy')"
    conversion = converted(tmp_path, helper, ready=snippet)
    assert place_of(conversion.new_text, "ready") == snippet
    (message,) = findings(conversion)
    assert "it may be read again" in message


def test_what_is_downloaded_in_turns_makes_its_folders_there(tmp_path: Path) -> None:
    helper = """
    def get(url, root):
        if not os.path.exists(root):
            os.makedirs(root)
            np.save(root, 1)
        with open(root + "list", "w") as f:
            f.write("x")
    class Pictures(torch.utils.data.Dataset):
        def __init__(self, root, download=False):
            if download:
                get("http://pictures", root)
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return torch.ones(4), 1
    """
    ready = "train = Pictures('a', download=True)\nother = Pictures('b', download=True)"
    conversion = converted(tmp_path, helper, ready=ready)
    turns = "with accelerator.main_process_first():\n    "
    expected = turns + ready.replace("\n", "\n    ")
    assert place_of(conversion.new_text, "ready") == expected
    assert findings(conversion) == []


@pytest.mark.parametrize(
    "line", ["setattr(self, name, value)", "self.__dict__.update(given)", "vars(self).update({name: value})"]
)
def test_what_also_sets_options_is_called_by_all(tmp_path: Path, line: str) -> None:
    helper = f"""
    class Options:
        rate = 0.1
        def parse(self, given):
            for name, value in given.items():
                {line}
            print(given)
    options = Options()
    """
    snippet = "options.parse({'rate': 0.5})"
    conversion = converted(tmp_path, helper, ready=snippet)
    assert place_of(conversion.new_text, "ready").startswith(snippet)


def test_a_log_in_the_place_of_the_screen_leaves_the_others_theirs(tmp_path: Path) -> None:
    helper = """
    class Logger:
        def __init__(self, path):
            self.console = sys.stdout
            self.file = open(path, "w")
        def write(self, text):
            self.console.write(text)
            self.file.write(text)
    """
    conversion = converted(tmp_path, helper, imports="import sys", ready="sys.stdout = Logger('log.txt')")
    assert place_of(conversion.new_text, "ready").startswith(f"{GUARD}sys.stdout = Logger('log.txt')")
    conversion = converted(
        tmp_path, helper, imports="import sys", ready="log = Logger('a')\nsys.stdout = log"
    )
    made = "log = Logger('a') if accelerator.is_main_process else None"
    assert place_of(conversion.new_text, "ready") == f"{made}\n{GUARD}sys.stdout = log"


def test_a_checkpoint_that_a_helper_copied_is_waited_for(tmp_path: Path) -> None:
    helper = """
    import shutil

    def save_checkpoint(state, best, path):
        torch.save(state, path)
        if best:
            shutil.copy(path, "best.pt")

    def load_checkpoint(path):
        return torch.load(path)
    """
    end = """
    save_checkpoint({"model": model.state_dict()}, True, "last.pt")
    state = load_checkpoint("best.pt")
    """
    conversion = converted(tmp_path, helper, ready="state = load_checkpoint('first.pt')", end=end)
    assert "wait_for_everyone" not in place_of(conversion.new_text, "ready")
    assert "accelerator.wait_for_everyone()\nstate = load_checkpoint" in place_of(conversion.new_text, "end")


CHANGES = {
    "weights through a dictionary": "own = self.state_dict()\n    for k in own:\n        print(k)\n"
    "        own[k].copy_(v[k])",
    "tensors in a list of its own": "own = [self.table]\n    print(v)\n    own[0].fill_(v)",
    "an attribute": "print(v)\n    self.scale = v",
    "what is trained": "for p in self.parameters():\n        print(p)\n        p.requires_grad_(False)",
}


@pytest.mark.parametrize("body", CHANGES.values(), ids=CHANGES)
def test_a_method_that_prints_and_changes_its_model_is_called_by_all(tmp_path: Path, body: str) -> None:
    method = textwrap.indent(body, "    ")
    helper = f"""
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.table = torch.zeros(4)
    def forward(self, x):
        return self.fc(x)
    def change(self, v):
    {method}
"""
    build = "model = Net()\nmodel.change(3)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    conversion = converted(tmp_path, helper, build=build)
    assert "\nmodel.change(3)\n" in conversion.new_text
    assert not findings(conversion)


def test_what_a_method_that_prints_keeps_for_the_training(tmp_path: Path) -> None:
    """A line counter that only its own lines show is left to the main process, a rate for the training is not."""
    helper = """
    class Settings:
        def __init__(self):
            self.rate, self.rows = 0.1, 0
        def slow(self, rate):
            print(rate)
            self.rate = rate
        def row(self, x):
            print(self.rows, x)
            self.rows = self.rows + 1
        def use(self, optimizer):
            for group in optimizer.param_groups:
                group["lr"] = self.rate
    """
    ready = "settings = Settings()\nsettings.slow(0.5)\nsettings.row(1)\nsettings.use(optimizer)"
    conversion = converted(tmp_path, helper, ready=ready)
    expected = f"settings = Settings()\nsettings.slow(0.5)\n{GUARD}settings.row(1)\nsettings.use(optimizer)"
    assert place_of(conversion.new_text, "ready") == expected


@pytest.mark.parametrize("line", ["net.eval()", "torch.nn.init.zeros_(net.weight)"])
def test_a_function_that_prints_and_changes_the_model_is_called_by_all(tmp_path: Path, line: str) -> None:
    helper = f"def change(net):\n    print(net)\n    {line}\n"
    conversion = converted(tmp_path, helper, ready="change(model)")
    assert place_of(conversion.new_text, "ready").endswith("change(model)")
    assert "is_main_process" not in conversion.new_text


SAMPLES = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x)
    def sample(self, folder=None):
        if folder is not None:
            make(folder)
        return self.forward(torch.ones(1, 4))
def make(folder):
    if not os.path.exists(folder):
        os.makedirs(folder)
"""
NET = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"


def test_a_prepared_model_is_run_by_all_at_once(tmp_path: Path) -> None:
    """Processes meet in its forward: one that came first would wait there for the others."""
    conversion = converted(tmp_path, SAMPLES, build=NET, epoch="y = model.sample('a')")
    assert "main_process_first" not in conversion.new_text
    assert "its result is used" in findings(conversion)[0]


def test_what_is_only_written_where_a_path_is_given(tmp_path: Path) -> None:
    conversion = converted(tmp_path, SAMPLES, build=NET, epoch="y = model.sample()\nz = model.sample(None)")
    assert place_of(conversion.new_text, "epoch").count("model.sample(") == 2
    assert not findings(conversion)
    helper = "def show(x, path='', **more):\n    if path and x > 1:\n        np.save(path, x)\n    return x\n"
    helper += "def both(x, out=None):\n    return show(x, path=out)\n"
    quiet = "show(1)\nshow(1, '')\nboth(1)\nnames = {}"
    conversion = converted(tmp_path, helper, epoch=quiet)
    assert place_of(conversion.new_text, "epoch") == quiet
    conversion = converted(tmp_path, helper, ready="names = {}", epoch="a = show(1, 'a')\nb = both(1, 'a')")
    assert len(findings(conversion)) == 2
    conversion = converted(tmp_path, helper, ready="names = {}", epoch="a = show(1, **names)")
    assert len(findings(conversion)) == 1


def test_a_download_that_is_not_asked_for(tmp_path: Path) -> None:
    helper = "import urllib.request\n\n\ndef load(root, download=True):\n    if download:\n"
    helper += "        urllib.request.urlretrieve('http://x', root)\n    return 1\n"
    conversion = converted(tmp_path, helper, ready="a = load('a', download=False)\nb = load('b')")
    expected = "a = load('a', download=False)\nwith accelerator.main_process_first():\n    b = load('b')"
    assert place_of(conversion.new_text, "ready") == expected


def test_a_method_that_one_process_calls_is_the_model_s_own(tmp_path: Path) -> None:
    """The wrapper's would be a step of all of them."""
    helper = SAMPLES + "class Log(Net):\n    def log(self, path):\n        np.save(path, 1)\n"
    conversion = converted(tmp_path, helper, build=NET.replace("Net", "Log"), epoch="model.log('a')")
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}accelerator.unwrap_model(model).log('a')"


BEGINS = """
import logging


def begin(path):
    if not os.path.exists("logs"):
        os.mkdir("logs")
    logging.basicConfig(filename=path, filemode={mode})


def make(path):
    logger = logging.getLogger("run")
    logger.addHandler(logging.FileHandler(path, {mode}))
    return logger


def make_there(path):
    if not os.path.exists("logs"):
        os.mkdir("logs")
    return make(path)


def make_within(folder):
    if not os.path.exists("logs"):
        os.mkdir("logs")
    logger = logging.getLogger("run")
    logger.addHandler(logging.FileHandler(folder + "/run.log", {mode}))
    return logger
"""


def test_a_log_file_that_another_module_begins_anew(tmp_path: Path) -> None:
    ready = "begin('a.log')\nlogger = make('b.log')\nlogger = make(path='c' if RATE else 'd')"
    conversion = converted(tmp_path, BEGINS.format(mode="'w'"), setup="RATE = 1\n", ready=ready)
    elsewhere = "if accelerator.is_main_process else os.devnull)"
    made = f"logger = make('b.log' {elsewhere}\nlogger = make(path=('c' if RATE else 'd') {elsewhere}"
    assert place_of(conversion.new_text, "ready") == f"{GUARD}begin('a.log')\n{made}"
    assert not findings(conversion)


def test_a_log_file_that_another_module_names_is_only_said(tmp_path: Path) -> None:
    ready = "logger = make_there('c.log')\nother = make_within('logs')"
    conversion = converted(tmp_path, BEGINS.format(mode="'w'"), setup="RATE = 1\n", ready=ready)
    turns = "with accelerator.main_process_first():\n" + textwrap.indent(ready, "    ")
    assert place_of(conversion.new_text, "ready") == turns
    said = findings(conversion)
    assert len(said) == 2
    assert all("begins a log file anew (logging.FileHandler in helper.py, line" in text for text in said)


@pytest.mark.parametrize(("mode", "begins"), [("w", True), ("a", False)])
def test_a_log_file_whose_mode_is_a_default(tmp_path: Path, mode: str, begins: bool) -> None:
    helper = BEGINS.format(mode="mode").replace("def make(path)", f"def make(path, mode={mode!r})")
    helper = helper.replace("filemode=mode", "filemode='a'").replace('"/run.log", mode', '"/run.log", "a"')
    conversion = converted(tmp_path, helper, setup="RATE = 1\n", ready="logger = make('b.log')")
    elsewhere = " if accelerator.is_main_process else os.devnull" if begins else ""
    assert place_of(conversion.new_text, "ready") == f"logger = make('b.log'{elsewhere})"


def test_a_log_file_that_another_module_goes_on_with(tmp_path: Path) -> None:
    ready = "logger = make('b.log')"
    conversion = converted(tmp_path, BEGINS.format(mode="'a'"), setup="RATE = 1\n", ready=ready)
    assert place_of(conversion.new_text, "ready") == ready
    assert not findings(conversion)


def test_what_functions_of_another_module_print_is_said_once(tmp_path: Path) -> None:
    helper = """
    def report(x, loud=False):
        if loud:
            print("loud")
        return x

    def count(n):
        print("n")
        print("of", n)
        return n

    def show(x):
        print(x)
    """
    epoch = "show(3)\nn = count(3)\nm = count(4)\nreport(x)\nreport(x)"
    conversion = converted(tmp_path, helper, epoch=epoch)
    assert place_of(conversion.new_text, "epoch") == epoch.replace("show", f"{GUARD}show")
    (said,) = prints_by_all(conversion)
    assert said.endswith("; the same at line 16")
    assert not prints_by_all(converted(tmp_path, helper, epoch="x = report(x)"))


def test_what_is_written_to_the_terminal_counts_as_printed(tmp_path: Path) -> None:
    helper = """
    import sys

    def count(n):
        sys.stdout.write("\\r%d" % n)
        sys.stdout.flush()
        return n

    def tidy(n):
        sys.stdout.flush()
        return n
    """
    (said,) = prints_by_all(converted(tmp_path, helper, epoch="n = count(3)\nm = tidy(4)"))
    assert "`sys.stdout.write`" in said
    assert not prints_by_all(converted(tmp_path, helper, epoch="m = tidy(4)"))


@pytest.mark.parametrize(
    "body",
    ["return n\n    print(n)", "raise ValueError(n)\n    print(n)", "return n\n    if n:\n        print(n)"],
)
def test_what_never_runs_prints_nothing(tmp_path: Path, body: str) -> None:
    helper = f"def count(n):\n    {body}\n"
    assert not prints_by_all(converted(tmp_path, helper, epoch="n = count(3)"))


EVALUATES = """
def accuracy(model, data):
    model.eval()
    right = 0
    for x, y in data:
        right += (model(x).argmax(1) == y).sum().item()
    return right / 64


@torch.no_grad()
def norm(data):
    total = 0
    for x, _ in data:
        total += x.sum().item()
    return total
"""


def test_an_evaluation_that_every_process_does_in_another_module(tmp_path: Path) -> None:
    lines = "own = DataLoader(data, batch_size=4)\nprint(accuracy(model, own))\nn = accuracy(model, own)\nm = norm(own)"
    said = "every process evaluates all that `accuracy` goes through, so that its figures stay right"
    conversion = converted(tmp_path, EVALUATES, epoch=lines, end="test_loader = None")
    assert findings(conversion, "ACC303") == [said]
    shared = "n = accuracy(model, loader)"
    assert not findings(converted(tmp_path, EVALUATES, epoch=shared), "ACC303")


LOADED = """
def restore(model, path):
    state = {}
    for name, value in torch.load(path).items():
        state[name[7:]] = value
    model.load_state_dict(state)
    model.eval()
    return model


def scores(model, data):
    found = []
    with torch.no_grad():
        for x, y in data:
            found.append((model(x).argmax(1) == y).sum().item())
    return found


def report(model, data, score):
    found = score(model, data)
    for one in found:
        assert one >= 0
    return sum(found)
"""


@pytest.mark.parametrize(("keeps", "found"), [("self.net = model", 1), ("self.size = 4", 0)])
def test_an_evaluation_of_what_an_object_keeps(tmp_path: Path, keeps: str, found: int) -> None:
    helper = """
    def encode(pair, data):
        found = []
        for x, y in data:
            found.append(pair.run(x))
        return found
    """
    pair = f"class Pair:\n    def __init__(self):\n        {keeps}\n    def run(self, x):\n        return model(x)\n"
    lines = "own = DataLoader(data, batch_size=4)\nkept = encode(pair, own)"
    conversion = converted(
        tmp_path, helper, ready=f"{pair}pair = Pair()", epoch=lines, end="test_loader = None"
    )
    assert len(findings(conversion, "ACC303")) == found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("restore(model, 'a.pt')", ""),
        ("total = report(model, own, scores)", "report"),
        ("total = report(model, own, lambda net, data: [1, 2])", ""),
    ],
)
def test_an_evaluation_is_one_by_what_it_runs_the_model_on(tmp_path: Path, line: str, name: str) -> None:
    lines = f"own = DataLoader(data, batch_size=4)\n{line}"
    conversion = converted(tmp_path, LOADED, epoch=lines, end="test_loader = None")
    said = f"every process evaluates all that `{name}` goes through, so that its figures stay right"
    assert findings(conversion, "ACC303") == [said] * bool(name)


MEASURES = """
def measure(model, data):
    {first}
    found = []
    for x, y in data:
        found.append((model(x).argmax(1) == y).sum().item())
    {last}
"""


@pytest.mark.parametrize(
    ("first", "last", "given", "found"),
    [
        ("pass", "return sum(found)", "own", 1),
        ("model.train()", "return sum(found)", "own", 0),
        ("pass", "del found", "own", 0),
        ("pass", "return sum(found)", "[(x, y)]", 0),
        ("pass", "return sum(found)", "loader", 0),
    ],
)
def test_an_evaluation_of_a_model_that_its_caller_sets_to_it(
    tmp_path: Path, first: str, last: str, given: str, found: int
) -> None:
    lines = f"own = DataLoader(data, batch_size=4)\nmodel.eval()\nn = measure(model, {given})\nmodel.train()"
    helper = MEASURES.format(first=first, last=last)
    conversion = converted(tmp_path, helper, epoch=lines, end="test_loader = None")
    assert len(findings(conversion, "ACC303")) == found


ATTACKS = """
def loss_of(model, x, y):
    model.eval()
    for _ in range(3):
        x = x + torch.autograd.grad(model(x).sum(), [x.requires_grad_()])[0].sign()
    model.train()
    return torch.nn.functional.cross_entropy(model(x), y)
"""


@pytest.mark.parametrize(("batch", "found"), [("x, y", 0), ("torch.zeros(4, 4), torch.zeros(4).long()", 1)])
def test_what_is_done_with_a_batch_is_no_evaluation_of_all_data(
    tmp_path: Path, batch: str, found: int
) -> None:
    conversion = converted(tmp_path, ATTACKS, batch=f"more = helper.loss_of(model, {batch})")
    assert len(findings(conversion, "ACC303")) == found


EVALUATING = """
from torch.utils.data import Dataset


class Saving(Dataset):
    def save(self, results, where):
        json.dump(results, open(where, "w"))

    def run_eval(self, results, where):
        {before}
        self.save(results, where)
        return len(json.load(open(where)))


class Samples:
    def __getitem__(self, i):
        return torch.randn(4), i % 2

    def __len__(self):
        return 8


class Plain(Saving, Samples):
    pass


kinds = {{"a": Saving}}


def kind(name):
    class Both(kinds[name], Samples):
        pass
    return Both
"""


@pytest.mark.parametrize("made", ["helper.Plain()", "helper.kind('a')()"])
def test_a_data_set_behind_its_loader_that_writes_and_reads_a_file(tmp_path: Path, made: str) -> None:
    ready = f"own = DataLoader({made}, batch_size=8)"
    line = "own.dataset.run_eval({}, 'out.json')"
    found = converted(tmp_path, EVALUATING.format(before="pass"), ready=ready, end=line)
    assert place_of(found.new_text, "end") == GUARD + line
    kept = converted(tmp_path, EVALUATING.format(before="pass"), ready=ready, end=f"n = {line}\nprint(n)")
    assert findings(kept)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("", False),
        ("out = kept(x, 'a')", True),
        ("run = given.run(kept)", True),
        ("run = globals()[given.name]", True),
    ],
)
def test_a_function_that_nobody_calls_writes_nothing(tmp_path: Path, other: str, said: bool) -> None:
    helper = "class Store:\n    def __init__(self, path):\n        self.out = open(path, 'w')\n"
    setup = "def kept(x, path):\n    return Store(path)\n"
    conversion = converted(tmp_path, helper, setup=setup, end=other, imports="import given")
    assert bool(findings(conversion)) == said


def test_a_function_beside_a_training_that_others_call(tmp_path: Path) -> None:
    helper = "class Store:\n    def __init__(self, path):\n        self.out = open(path, 'w')\n"
    script = """
    import torch
    from helper import Store
    def kept(path):
        return Store(path)
    def train(model, optimizer, loader):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    def main(data):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(data)
        train(model, optimizer, loader)
    """
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert len(findings(conversion)) == 1


LOSSES = """
class Part(torch.nn.Module):
    def forward(self, out, y, loud=False):
        if loud:
            print("loud")
        print("part", out.shape)
        return torch.nn.functional.cross_entropy(out, y)


class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, out, y):
        return self.part(out, y)
"""


@pytest.mark.parametrize("made", ["Part()", "Loss()"])
def test_what_the_forward_of_a_loss_prints_is_said(tmp_path: Path, made: str) -> None:
    ready = f"criterion = {made}"
    conversion = converted(tmp_path, LOSSES, ready=ready, loss="loss = criterion(model(x), y)")
    assert len(prints_by_all(conversion)) == 1
    assert place_of(conversion.new_text, "loss") == "loss = criterion(model(x), y)"
    assert not findings(conversion)


DRAWS = """
class Drawn(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.zeros(8, 4)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.rows[index]{more}

drawn = Drawn()
"""


@pytest.mark.parametrize(("more", "alone"), [(" + torch.rand(4)", False), ("", True)])
def test_a_line_that_looks_at_a_sample_which_is_drawn_is_left_to_all(
    tmp_path: Path, more: str, alone: bool
) -> None:
    helper = "def note(text):\n    with open('log.txt', 'a') as f:\n        f.write(text)\n"
    conversion = converted(tmp_path, helper, setup=DRAWS.format(more=more), ready="note(str(drawn[0].shape))")
    guarded = "if accelerator.is_main_process:\n    note(str(drawn[0].shape))"
    assert place_of(conversion.new_text, "ready") == (guarded if alone else "note(str(drawn[0].shape))")
    assert [message.endswith("it draws random numbers") for message in findings(conversion)] == [True] * (
        not alone
    )
