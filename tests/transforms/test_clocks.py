"""ACC211: files and folders that are named by the clock."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert

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
    assert "from accelify.runtime import broadcast_object_list\n" in found.new_text


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
    assert "ACC211" in {f.code for f in convert(imports=imports, setup=gone, end=read).remaining}


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
