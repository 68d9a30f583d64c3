"""What all ranks do, what one does for all, and where the main process may go another way."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import os, time, torch
from multiprocessing import Process
from pathlib import Path
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
data, net = torch.load("d"), torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, batch_size=8))
"""


def named(body: str) -> list[str]:
    """The demands that are not proved of a script with these lines, each with its line, from 1 in the body."""
    found = validate(HEAD + body, None, KNOWLEDGE).of(Status.NAMED)
    return [f"{one.line - HEAD.count(chr(10))} {one.sink}/{one.demand}" for one in found]


@pytest.mark.parametrize(
    ("test", "once"),
    [
        ("not os.path.exists('a')", True),
        ("not Path.exists(Path('a'))", True),
        ("not Path('a').exists()", True),
        ("not os.path.exists('a') and data", True),
        ("not os.path.exists('a') or data", False),
        ("os.path.exists('a')", False),
        ("data", False),
    ],
)
def test_what_the_first_leaves_is_there_for_the_others(test: str, once: bool) -> None:
    body = f"with accelerator.main_process_first():\n    if {test}:\n        print('making')\n        os.mkdir('a')\n"
    assert named(body) == ([] if once else ["3 terminal.write/once"])
    plain = f"if {test}:\n    print('making')\n"
    assert named(plain) == ["2 terminal.write/once"]
    other = f"with accelerator.main_process_first():\n    if {test}:\n        pass\n    else:\n        print('found')\n"
    assert named(other) == ([] if test == "os.path.exists('a')" else ["5 terminal.write/once"])


DATASET = """\
class Digits:
    def __init__(self, root):
        self.root = root
        self.download()
    def found(self):
        return {asked}
    def download(self):
        if self.found():
            return
        print('downloading')
with accelerator.main_process_first():
    Digits('a')
"""


@pytest.mark.parametrize(
    ("asked", "once"),
    [
        ("os.path.exists(self.root)", True),
        ("os.path.exists(self.root) and os.path.isfile(self.root + '/b')", True),
        ("os.path.exists(self.root) or data", True),
        ("not os.path.exists(self.root)", False),
        ("os.path.exists(self.root) and data", False),
        ("os.path.exists(self.root) == data", False),
    ],
)
def test_a_data_set_that_asks_whether_it_is_there(asked: str, once: bool) -> None:
    assert named(DATASET.format(asked=asked)) == ([] if once else ["10 terminal.write/once"])


DRAWN = """\
import numpy as np
with accelerator.main_process_first():
    if {asked}:
        torch.save(np.random.permutation(9), 'order')
if np.random.rand() < 0.5:
    accelerator.wait_for_everyone()
"""


def test_what_the_first_draws_alone_parts_the_stream() -> None:
    parted = ["6 collective/all ranks"]
    assert named(DRAWN.format(asked="not os.path.exists('order')")) == parted
    assert parted[0] not in named(DRAWN.format(asked="data"))


def test_what_a_time_chooses_is_as_good_as_a_time() -> None:
    timed = "start = time.time()\ntook = time.time() - start\nword = 'slow' if took > 3 else 'fast'\n"
    assert named(f"{timed}accelerator.print(word)\n") == []
    text = (
        "def text(took):\n    if took < 60:\n        return f'{took:.1f}'\n    return f'{took // 60} min'\n"
    )
    assert named(f"{text}{timed}accelerator.print(text(took))\n") == []
    assert named(f"{timed}torch.save(1, word)\n") == ["4 file.write/once", "4 file.write/path"]
    assert named(f"{timed}if took > 3: accelerator.wait_for_everyone()\n") == ["4 collective/all ranks"]


LOOP = """\
i, going = 0, True
while going:
    for x, y in loader:
        i += 1
        {step}
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        {end}
"""


def test_a_schedule_in_a_loop_that_ends_by_the_same_count() -> None:
    ended = "if i >= 40: going = False; break"
    assert named(LOOP.format(step="schedule.step()", end=ended)) == ["3 leave/rounds"]
    assert named(LOOP.format(step="schedule.step()", end="going = data")) == ["5 schedule/rounds"]


WORKER = """\
def work(remote):
    {body}
one = Process(target=work, args=(data,))
one.start()
"""


def test_workers_of_each_rank() -> None:
    assert named(WORKER.format(body="remote.recv()")) == []
    assert named(WORKER.format(body="print(remote.recv())")) == ["2 terminal.write/once"]
    assert named(WORKER.format(body="accelerator.wait_for_everyone()")) == ["4 process.run/once"]


TRY = """\
try:
    if accelerator.is_main_process: os.remove('a')
    accelerator.wait_for_everyone()
except {caught}:
    {handled}
"""


@pytest.mark.parametrize(
    ("caught", "handled", "waits"),
    [
        ("OSError", "pass", True),
        ("(OSError, ValueError) as error", "error = str(error)", True),
        ("Exception", "net = None", True),
        ("ValueError", "pass", False),
        ("OSError", "raise", False),
        ("OSError", "os._exit(1)", False),
    ],
)
def test_a_wait_that_the_main_process_may_leave_out(caught: str, handled: str, waits: bool) -> None:
    found = [one for one in named(TRY.format(caught=caught, handled=handled)) if "process.run" not in one]
    assert found == (["3 collective/all ranks"] if waits else [])


def test_a_wait_beside_what_the_main_process_tries() -> None:
    tried = "try:\n    if accelerator.is_main_process: os.remove('a')\nexcept OSError:\n    pass\n"
    assert named(f"{tried}accelerator.wait_for_everyone()\n") == []
    early = "try:\n    accelerator.wait_for_everyone()\n    if accelerator.is_main_process: os.remove('a')\n"
    assert named(f"{early}except OSError:\n    pass\n") == []


@pytest.mark.parametrize(
    ("test", "once"),
    [
        ("accelerator.is_main_process and not folder.exists()", True),
        ("not folder.exists() and accelerator.is_main_process", True),
        ("not folder.exists()", False),
        ("accelerator.is_main_process or not folder.exists()", False),
    ],
)
def test_a_folder_named_by_the_time_that_the_main_process_asks_for(test: str, once: bool) -> None:
    body = f"folder = Path(time.strftime('%Y'))\nif {test}:\n    folder.mkdir()\n"
    assert ("3 folder.make/once" not in named(body)) == once


@pytest.mark.parametrize(
    ("error", "condition", "is_alike"),
    [
        ("Enough", "epoch > 1", True),
        ("Enough", "loss > 1", False),
        ("Base", "epoch > 1", True),
        ("Exception", "epoch > 1", True),
    ],
)
def test_an_error_of_the_project_that_all_ranks_raise_alike(
    error: str, condition: str, is_alike: bool
) -> None:
    body = (
        "class Base(Exception):\n    pass\nclass Enough(Base):\n    pass\n"
        "try:\n    for epoch in range(3):\n        for x in loader:\n"
        "            loss = net(x).mean()\n            accelerator.backward(loss)\n"
        f"        if {condition}:\n            raise Enough()\n"
        f"except {error}:\n    accelerator.print('stopped')\n"
    )
    assert (named(body) == []) is is_alike


@pytest.mark.parametrize(("last", "is_named"), [("raise", False), ("pass", True)])
def test_who_fails_says_so_before_it_raises(last: str, is_named: bool) -> None:
    body = (
        "import logging\nlog = logging.getLogger('a')\n"
        "try:\n    for x in loader:\n        accelerator.backward(net(x).mean())\n"
        f"except Exception as error:\n    log.error(f'failed: {{error}}')\n    {last}\n"
    )
    assert any("log.write" in one for one in named(body)) is is_named


@pytest.mark.parametrize(
    ("side", "leaves", "by_all"),
    [("", "not ", True), ("not ", "", True), ("not ", "not ", False)],
)
def test_who_has_left_a_branch_that_it_never_came_to(side: str, leaves: str, by_all: bool) -> None:
    """Within one way of a condition that asks for the rank nobody goes the other: all come to what stands after."""
    body = (
        f"def go():\n    if {side}accelerator.is_main_process:\n"
        f"        if {leaves}accelerator.is_main_process:\n            return\n        data\n"
        "    os.remove('a')\ngo()\n"
    )
    assert named(body) == ["6 file.delete/once"] * by_all
