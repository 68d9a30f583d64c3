"""ACC211: files and folders that are named by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import (
    PATH,
    check_noop,
    check_transformed,
    codes,
    convert,
    frame,
    names_path,
    place_of,
)

IMPORTS = "import glob\nimport time\nfrom datetime import datetime\n"
SAVED = 'torch.save(model.state_dict(), os.path.join(folder, "best.pt"))\n'
CLOCK = 'folder = datetime.now().strftime("%H-%M-%S")\n'


def test_a_folder_is_named_by_one_clock() -> None:
    found = check_transformed(
        "ready",
        CLOCK,
        'folder = broadcast_object_list([datetime.now().strftime("%H-%M-%S")])[0]',
        imports=IMPORTS,
        end=SAVED,
    )
    assert "from accelify.runtime import Accelerator, broadcast_object_list\n" in found.new_text


def test_an_object_that_is_given_the_time_is_no_name() -> None:
    made = 'writer = SummaryWriter(os.path.join("runs", datetime.now().strftime("%H-%M-%S")))\n'
    imports = IMPORTS + "from torch.utils.tensorboard import SummaryWriter\n"
    found = convert(
        imports=imports, ready=made, epoch='writer.add_scalar("loss", loss.item(), epoch)\n', end=SAVED
    )
    assert "broadcast_object_list" not in found.new_text
    assert "if accelerator.is_main_process else None" in place_of(found.new_text, "ready")


def test_a_time_that_is_put_into_a_path() -> None:
    check_transformed(
        "ready",
        'name = "run-" + str(int(time.time()))\n',
        'name = broadcast_object_list(["run-" + str(int(time.time()))])[0]',
        imports=IMPORTS,
        end="torch.save(model.state_dict(), name)\n",
    )


@pytest.mark.parametrize(
    "made",
    [
        "os.path.join('runs', 'run_%d' % int(time.time()))",
        "os.path.join('runs', 'run_{}'.format(time.time()))",
    ],
)
def test_a_time_that_is_filled_into_a_path(made: str) -> None:
    check_transformed(
        "ready",
        f"folder = {made}\n",
        f"folder = broadcast_object_list([{made}])[0]",
        imports=IMPORTS,
        end=SAVED,
    )


def test_a_time_that_was_taken_is_no_name() -> None:
    check_noop("ready", "start = 3.0\nnote = '%.2f s' % (time.time() - start)\n", "ACC211", imports=IMPORTS)


def test_times_that_are_measured_or_printed_stay() -> None:
    check_noop(
        "ready", "start = time.time()\n", "ACC211", imports=IMPORTS, end="print(time.time() - start)\n"
    )
    check_noop("ready", CLOCK, "ACC211", imports=IMPORTS, end="print(folder)\n")


def test_in_a_loop_it_stays() -> None:
    check_noop("epoch", CLOCK + "path = os.path.join(folder, 'x')\n", "ACC211", imports=IMPORTS)


def test_in_a_function_that_is_called_between_the_batches_it_stays() -> None:
    """Only the main process writes there, and not all of them may come to it."""
    script = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader
class Train:
    def __init__(self):
        self.folder = os.path.join("runs", "run_%d" % time.time())
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def save(self):
        path = os.path.join(self.folder, "model_%d" % time.time())
        torch.save(self.model.state_dict(), path)
    def run(self):
        for i, x in enumerate(DataLoader(list(torch.randn(8, 3)), batch_size=2)):
            self.optimizer.zero_grad()
            self.model(x).mean().backward()
            self.optimizer.step()
            if i % 2 == 0:
                self.save()
Train().run()
"""
    text = convert_source(Source.from_text(script, PATH)).new_text
    assert 'self.folder = broadcast_object_list([os.path.join("runs", "run_%d" % time.time())])[0]' in text
    assert text.count("broadcast_object_list([") == 1


def test_before_the_accelerator_it_is_agreed_later_where_something_is_read_again() -> None:
    early = CLOCK + "args = argparse.ArgumentParser().parse_args()\n"
    imports = f"import argparse\n{IMPORTS}"
    read = SAVED + "files = glob.glob(os.path.join(folder, '*'))\n"
    silent = convert(imports=imports, setup=early, end=SAVED)
    assert "ACC211" not in codes(silent)
    found = convert(imports=imports, setup=early, end=read)
    assert "\nfolder = broadcast_object_list([folder])[0]\n" in found.new_text
    gone = early.replace("args =", "print(folder)\nargs =")
    assert names_path(convert(imports=imports, setup=gone, end=read))


def test_the_default_of_an_option() -> None:
    setup = """
    parser = argparse.ArgumentParser()
    name = "".join(str(time.time()).split("."))
    parser.add_argument("--save-to", default=name + ".pt")
    args = parser.parse_args()
    """
    text = convert(
        imports=f"import argparse\n{IMPORTS}",
        setup=setup,
        end="torch.save(model.state_dict(), args.save_to)\nstate = torch.load(args.save_to)",
    ).new_text
    assert "\nargs.save_to = broadcast_object_list([args.save_to])[0]\n" in text


def test_a_name_that_is_put_into_another_one() -> None:
    check_transformed(
        "ready",
        """
        stamp = datetime.now().isoformat()
        folder = '{}/exp{}/'.format('logs', stamp)
        """,
        """
        stamp = broadcast_object_list([datetime.now().isoformat()])[0]
        folder = '{}/exp{}/'.format('logs', stamp)
        """,
        imports=IMPORTS,
        end=SAVED,
    )


def test_a_folder_is_looked_into_when_all_is_written() -> None:
    check_transformed(
        "end",
        "torch.save(model.state_dict(), 'out/best.pt')\nfor path in os.listdir('out'):\n    print(path)\n",
        """
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), 'out/best.pt')
        accelerator.wait_for_everyone()
        for path in os.listdir('out'):
            accelerator.print(path)
        """,
    )


FOLDER = """
import os
from datetime import datetime
def run_folder(tag):
    name = datetime.now().strftime("%H%M%S")
    name += tag
    out = os.path.join("runs", name)
    if not os.path.exists(out):
        os.makedirs(out)
    return out
"""
STAMP = """
import os
import time
def stamp():
    return time.strftime("%H%M%S")
"""
SET = """
import os
from datetime import datetime
def stamp():
    return datetime.now().isoformat()
def set_up(args):
    args.name = "{}_{}".format(args.data, stamp())
    args.folder = os.path.join("runs", args.name)
    os.makedirs(args.folder)
"""
TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader
{imports}
def main(args):
    {made}
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(list(torch.randn(8, 3)), batch_size=2):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), os.path.join({folder}, "net.pt"))
    model.load_state_dict(torch.load(os.path.join({folder}, "net.pt")))
if __name__ == "__main__":
    main(argparse.Namespace(data="a", resume=""))
"""
ONE = 'datetime.now().strftime("%H%M%S")'


def _train(imports: str, made: str, folder: str = "out") -> str:
    return TRAIN.format(imports=f"import argparse\nimport os\n{imports}", made=made, folder=folder)


@pytest.mark.parametrize("call", ['run_folder("a")', 'args.resume or run_folder("a")'])
def test_a_name_that_a_helper_makes(call: str) -> None:
    found = convert_source(Source.from_text(_train(FOLDER, f"out = {call}"), PATH))
    assert f"    name = broadcast_object_list([{ONE}])[0]\n    name += tag\n" in found.new_text
    assert found.new_text.count("broadcast_object_list([") == 1


def test_a_name_that_an_object_makes_for_itself() -> None:
    run = f"""
from datetime import datetime
class Run:
    def __init__(self):
        self.folder = os.path.join("runs", {ONE})
"""
    found = convert_source(Source.from_text(_train(run, "run = Run()", "run.folder"), PATH))
    assert f'self.folder = broadcast_object_list([os.path.join("runs", {ONE})])[0]' in found.new_text


def test_a_time_that_a_helper_gives_back() -> None:
    found = convert_source(Source.from_text(_train(STAMP, 'out = os.path.join("runs", stamp())'), PATH))
    assert 'out = broadcast_object_list([os.path.join("runs", stamp())])[0]' in found.new_text
    assert "def stamp():" in found.new_text


PLACES = """
from datetime import datetime
class Places:
    stamp = None
    def paths(self):
        if self.stamp is None:
            now = datetime.now()
            self.stamp = now.strftime("%H%M%S")
        stamp = self.stamp
        return {result}
"""


@pytest.mark.parametrize(
    ("result", "part"),
    [
        ("[f'best_{stamp}.pt', f'log_{stamp}.csv']", "[0]"),
        ("('best.pt', f'runs/{stamp}.pt')", "[-1]"),
        ("f'best_{stamp}.pt'", ""),
    ],
)
def test_one_of_several_names_that_a_method_gives_back(result: str, part: str) -> None:
    source = _train(PLACES.format(result=result), f"out = Places().paths(){part}", "out")
    found = convert_source(Source.from_text(source, PATH))
    assert f"out = broadcast_object_list([Places().paths(){part}])[0]" in found.new_text


def test_a_time_that_a_helper_gives_back_and_that_is_no_path() -> None:
    found = convert_source(Source.from_text(_train(STAMP, "note = stamp()", '"out"'), PATH))
    assert "ACC211" not in codes(found)


def test_a_helper_that_is_called_for_every_batch_stays() -> None:
    text = _train(FOLDER, 'out = "runs"').replace("        optimizer.step()\n", "        run_folder('b')\n")
    found = convert_source(Source.from_text(text, PATH))
    assert "broadcast_object_list" not in found.new_text


def test_a_helper_that_some_processes_may_not_come_to_is_named() -> None:
    made = 'out = "runs"\n    if torch.rand(1) > 0.5:\n        out = run_folder("a")'
    found = convert_source(Source.from_text(_train(FOLDER, made), PATH))
    assert "broadcast_object_list" not in found.new_text
    assert names_path(found)


@pytest.mark.parametrize(
    ("module", "made", "edited"),
    [
        (
            FOLDER,
            'out = tools.run_folder("a")',
            'out = broadcast_object_list([tools.run_folder("a") if accelerator.is_main_process else None])[0]',
        ),
        (
            STAMP,
            'out = os.path.join("runs", tools.stamp())',
            'out = broadcast_object_list([os.path.join("runs", tools.stamp())])[0]',
        ),
    ],
)
def test_a_name_of_a_module_that_stays_as_it_is(tmp_path: Path, module: str, made: str, edited: str) -> None:
    (tmp_path / "tools.py").write_text(module)
    found = convert_source(Source.from_text(_train("import tools", made), tmp_path / "train.py"))
    assert edited in found.new_text
    assert "main_process_first" not in found.new_text
    again = convert_source(Source.from_text(found.new_text, tmp_path / "train.py"))
    assert again.new_text == found.new_text


def test_a_module_that_keeps_the_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(SET)
    text = _train("import tools", "tools.set_up(args)", "args.folder")
    found = convert_source(Source.from_text(text, tmp_path / "train.py"))
    assert names_path(found)


def test_the_module_in_which_the_name_is_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "folders.py").write_text("\n" * 200 + SET)
    (tmp_path / "tools.py").write_text("import folders\n\n\ndef begin(args):\n    folders.set_up(args)\n")
    text = _train("import tools", "tools.begin(args)", "args.folder")
    found = convert_source(Source.from_text(text, tmp_path / "train.py"))
    assert names_path(found)
    assert any("(folders.py:" in f.message for f in found.remaining if f.code == "ACC703")


def test_what_only_the_main_process_names_is_not_named(tmp_path: Path) -> None:
    """A function whose whole work is done by the main process."""
    note = """
import time
def note(text):
    with open("notes-%d" % time.time(), "w") as file:
        file.write(text)
"""
    (tmp_path / "tools.py").write_text(note)
    text = _train("import tools", "tools.note('begun')", '"out"')
    found = convert_source(Source.from_text(text, tmp_path / "train.py"))
    assert "    if accelerator.is_main_process:\n        tools.note('begun')\n" in found.new_text
    assert "ACC211" not in codes(found)


def test_a_helper_of_a_module_that_is_converted_too(tmp_path: Path) -> None:
    step = """
def step(model, x):
    model(x).mean().backward()
"""
    (tmp_path / "tools.py").write_text(FOLDER + step)
    text = _train("from tools import run_folder, step", 'out = run_folder("a")')
    text = text.replace("model(x).mean().backward()", "step(model, x)")
    (tmp_path / "train.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "train.py"))
    assert [c.status for c in found] == ["converted", "converted"], found[0].reason
    assert f"    name = broadcast_object_list([{ONE}])[0]\n" in found[1].new_text
    assert "broadcast_object_list" not in found[0].new_text


TAKERS = {
    "function": "def fit(net, name):\n    out = os.path.join('runs', name)\n    os.makedirs(out, exist_ok=True)\n",
    "further on": "def folder(name):\n    return os.path.join('runs', name)\n"
    "def fit(net, name):\n    out = folder(f'{name}-1')\n",
    "object": "class fit:\n    def __init__(self, net, name):\n        self.net, self.name = net, name\n"
    "        self.label = name + '-1'\n    def keep(self):\n        return open(self.label, 'w')\n",
}
OTHERS = {
    "shown": "def fit(net, name):\n    print(name)\n    return os.path.join('runs', 'a')\n",
    "other argument": "def fit(net, name):\n    return os.path.join('runs', net)\n",
}


@pytest.mark.parametrize("taker", TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_name_that_is_handed_to_what_makes_the_path(tmp_path: Path, taker: str, elsewhere: bool) -> None:
    helper = f"import os\n{taker}"
    imports = IMPORTS + ("from helper import fit" if elsewhere else helper)
    (tmp_path / "helper.py").write_text(helper)
    for before, after in (
        (f"fit('a', 'run-' + {ONE})", f"fit('a', broadcast_object_list(['run-' + {ONE}])[0])"),
        (
            f"name = {ONE}\nfit('a', name=name)",
            f"name = broadcast_object_list([{ONE}])[0]\nfit('a', name=name)",
        ),
        (f"run = fit('a', {ONE})", f"run = fit('a', broadcast_object_list([{ONE}])[0])"),
    ):
        (tmp_path / "train.py").write_text(frame(imports=imports, ready=before))
        found = convert_project(Source.read(tmp_path / "train.py"))[0].new_text
        assert place_of(found, "ready") == after


@pytest.mark.parametrize("taker", OTHERS.values(), ids=OTHERS)
def test_a_name_that_is_handed_to_what_makes_no_path_of_it(taker: str) -> None:
    imports = f"{IMPORTS}{taker}"
    check_noop("ready", f"out = fit('a', 'run-' + {ONE})", "ACC211", imports=imports)
    check_noop("ready", f"name = {ONE}\nout = fit('a', name)", "ACC211", imports=imports)


NUMBERED = {
    "length": "    number = 1 + len(os.listdir(parent))\n    path = os.path.join(parent, '%s-%d' % (name, number))\n",
    "greatest": "    number = 0\n    for one in os.listdir(parent):\n        one = int(one.split('-')[-1])\n"
    "        if one > number:\n            number = one\n    number += 1\n"
    "    path = os.path.join(parent, name) + '-{}'.format(number)\n",
    "path": "    runs = pathlib.Path(parent)\n    numbers = [int(one.name[1:]) for one in runs.iterdir()]\n"
    "    path = runs / ('a%d' % (max(numbers) + 1))\n",
    "in a list": "    runs = []\n    for one in os.listdir(parent):\n        runs.append(int(one.split('-')[-1]))\n"
    "    path = os.path.join(parent, '%s-%d' % (name, max(runs) + 1 if runs else 1))\n",
    "counted": "    number = 0\n    for one in os.scandir(parent):\n        if one.is_dir():\n            number += 1\n"
    "    path = os.path.join(parent, str(number))\n",
    "pattern of a path": "    runs = pathlib.Path(parent)\n    path = runs / f\"a{len(list(runs.glob('a*')))}\"\n",
    "pattern": "    path = f\"{parent}/{name}{len(glob.glob(os.path.join(parent, '*')))}\"\n",
}
UNNUMBERED = {
    "a list of others": "    runs = []\n    for one in os.listdir(parent):\n        print(one)\n    runs.append(name)\n"
    "    path = os.path.join(parent, '%d' % (max(runs) + 1))\n",
    "classes of the data": "    path = os.path.join(parent, str(len(os.listdir(name))))\n",
    "what a path holds": "    path = pathlib.Path(parent) / str(max(pathlib.Path(parent).iterdir()))\n",
    "what is there": "    path = os.path.join(parent, max(os.listdir(parent)))\n",
}


def _new_run(lines: str) -> str:
    head = "import glob\nimport os\nimport pathlib\n\n\ndef new_run(parent, name):\n"
    return f"{head}{lines}    os.makedirs(path)\n    return path\n"


def _numbered(folder: Path, lines: str, **snippets: str) -> Conversion:
    (folder / "tools.py").write_text(_new_run(lines))
    (folder / "train.py").write_text(frame(imports="import tools", **snippets))
    return convert_project(Source.read(folder / "train.py"))[0]


@pytest.mark.parametrize("lines", NUMBERED.values(), ids=NUMBERED)
def test_a_folder_that_is_numbered_by_what_lies_there(tmp_path: Path, lines: str) -> None:
    call = "tools.new_run('runs', 'a')"
    found = _numbered(tmp_path, lines, ready=f"run = {call}")
    one = f"run = broadcast_object_list([{call} if accelerator.is_main_process else None])[0]"
    assert place_of(found.new_text, "ready") == one
    assert "ACC210" not in codes(found)


@pytest.mark.parametrize("lines", UNNUMBERED.values(), ids=UNNUMBERED)
def test_a_folder_that_is_numbered_by_nothing_there(tmp_path: Path, lines: str) -> None:
    found = _numbered(tmp_path, lines, ready="run = tools.new_run('runs', 'a')")
    assert "ACC211" not in codes(found)


def test_a_numbered_folder_of_a_helper_in_a_branch_is_named(tmp_path: Path) -> None:
    ready = "if torch.rand(1) > 0.5:\n    run = tools.new_run('runs', 'a')"
    (finding,) = [
        f for f in _numbered(tmp_path, NUMBERED["length"], ready=ready).remaining if f.code == "ACC211"
    ]
    assert "numbered by what lies there (tools.py, line 7)" in finding.message


@pytest.mark.parametrize("lines", NUMBERED.values(), ids=NUMBERED)
def test_all_look_what_lies_there_before_a_numbered_folder_is_made(lines: str) -> None:
    text = convert(setup=_new_run(lines), ready="run = new_run('runs', 'a')").new_text
    wait = "    accelerator.wait_for_everyone()\n    if accelerator.is_main_process:\n        os.makedirs(path)\n"
    assert wait in text


@pytest.mark.parametrize("lines", UNNUMBERED.values(), ids=UNNUMBERED)
def test_nobody_waits_before_another_folder_is_made(lines: str) -> None:
    text = convert(setup=_new_run(lines), ready="run = new_run('runs', 'a')").new_text
    assert "wait_for_everyone" not in text


def test_a_numbered_folder_that_an_object_keeps_is_named(tmp_path: Path) -> None:
    """The others would have none: their object was not asked."""
    lines = "import os\n\n\nclass Runs:\n    def new(self, parent):\n"
    lines += "        self.path = os.path.join(parent, str(len(os.listdir(parent))))\n"
    lines += "        os.makedirs(self.path, exist_ok=True)\n        return self.path\n\n"
    lines += "    def file(self, name):\n        return os.path.join(self.path, name)\n"
    (tmp_path / "tools.py").write_text(lines)
    ready = "runs = tools.Runs()\nrun = runs.new('runs')\npath = runs.file('a')"
    (tmp_path / "train.py").write_text(frame(imports="import tools", ready=ready))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert place_of(found.new_text, "ready") == ready
    assert "ACC211" in {f.code for f in found.remaining}


ON_IMPORT = """
import time, uuid
begun = {begun}
run = "run-" + begun
folder = "out/" + run + "/"
count = "3"
"""


@pytest.mark.parametrize(
    ("imported", "read", "by"),
    [
        ("import settings", "settings.folder", "clock"),
        ("import settings as s", "s.run", "clock"),
        ("from settings import folder as place", "place", "clock"),
        ("from settings import *", "folder", "an id"),
        ("import settings", "settings.count", ""),
    ],
)
def test_a_name_that_a_module_makes_on_import(tmp_path: Path, imported: str, read: str, by: str) -> None:
    begun = "uuid.uuid4().hex" if by == "an id" else "time.strftime('%H-%M-%S')"
    (tmp_path / "settings.py").write_text(ON_IMPORT.format(begun=begun))
    for use, said in ((f"os.makedirs({read}, exist_ok=True)", True), (f"print({read})", False)):
        text = frame(imports=f"import os\n{imported}", setup=use, end=SAVED.replace("folder", read))
        found = convert_source(Source.from_text(text, tmp_path / "train.py"))
        # What the main process saves by an id that nobody else knows is named, too.
        assert names_path(found) == ((said and bool(by)) or by == "an id")


def test_a_folder_that_the_main_process_makes_by_the_clock_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(ON_IMPORT.format(begun="time.strftime('%H-%M-%S')"))
    text = frame(imports="import os\nimport settings", ready="os.makedirs(settings.folder)")
    found = convert_source(Source.from_text(text, tmp_path / "train.py"))
    assert "if accelerator.is_main_process:\n" in found.new_text
    assert "ACC211" not in codes(found)


@pytest.mark.parametrize("numbered", [True, False])
def test_who_numbers_a_folder_by_what_lies_there_waits_until_all_have_looked(numbered: bool) -> None:
    lines = (
        "runs = pathlib.Path('runs')\ntaken = []\nfor one in runs.glob('run_*'):\n    taken.append(int(one.name[4:]))\n"
        f"number = max({'taken' if numbered else 'range(3)'}) + 1\n(runs / f'run_{{number}}').mkdir()"
    )
    text = convert(imports="import pathlib", ready=lines).new_text
    assert ("accelerator.wait_for_everyone()\n" in place_of(text, "ready")) is numbered
