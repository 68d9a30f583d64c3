"""Times that are chosen by a time, such as what a table of them has so far."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

FRAME = """\
from time import time
from accelify.runtime import Accelerator
accelerator = Accelerator()
spent = {{}}
for epoch in range(3):
    start = time()
    spent["epoch"] = spent["epoch"] if spent.get("epoch") else {first}
    spent["epoch"] += time() - start
    for name, seconds in spent.items():
        accelerator.print(f"{{name}}: {{seconds:.2f}}")
"""


def shown(first: str) -> list[Obligation]:
    checked = validate(FRAME.format(first=first), None, Knowledge())
    assert not checked.unread
    return [one for one in checked.obligations if one.demand == "content"]


def test_a_time_that_begins_where_there_is_none() -> None:
    (one,) = shown("0.0")
    assert one.status is Status.ASSUMED
    assert one.found == "printed: a time"


def test_a_rank_that_is_chosen_by_a_time() -> None:
    (one,) = shown("accelerator.process_index")
    assert one.status is Status.NAMED


LEAVING = """\
import time
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("data.pt"), batch_size=8))
start = time.time()
for x, y in loader:
    accelerator.backward((model(x) - y).mean())
    if {test}:
        break
"""


@pytest.mark.parametrize(
    ("test", "agreed"),
    [
        ("time.time() - start > 10", False),
        ("accelerator.reduce(int(time.time() - start > 10), reduction='max')", True),
        ("accelerator.reduce(time.time() - start, reduction='mean') > 10", True),
    ],
)
def test_all_ranks_leave_by_a_time_that_they_agree_on(test: str, agreed: bool) -> None:
    found = validate(LEAVING.format(test=test), None, Knowledge()).of(Status.NAMED)
    assert [one.demand for one in found] == ["all ranks"] * (not agreed)


BESIDE = """\
import time
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
net = accelerator.prepare(torch.nn.Linear(4, 1))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=8))
for epoch in range(2):
    for x in loader:
        loss = net(x).mean()
        accelerator.backward(loss)
    {shown}
"""


@pytest.mark.parametrize(
    "shown",
    [
        "accelerator.print(f'{time.time()} {X}')",
        "accelerator.print('%.1f %f' % (time.time(), X))",
        "accelerator.print('took ' + str(time.time()) + ': ' + str(X))",
        "accelerator.print('{}: {}'.format(time.time(), X))",
        "accelerator.print(time.time(), X)",
        "accelerator.print(X, time.time())",
    ],
)
def test_a_figure_beside_a_time(shown: str) -> None:
    """The time does not hide that the figure is of one batch."""
    for figure, status in (("loss", Status.LOOP), ("epoch", Status.ASSUMED)):
        text = BESIDE.format(shown=shown.replace("X", figure))
        found = [one for one in validate(text, None, Knowledge()).obligations if one.demand == "content"]
        assert [one.status for one in found] == [status]
    path = BESIDE.format(shown="accelerator.save(1, f'{time.time()}_{loss}.pt')")
    found = [one for one in validate(path, None, Knowledge()).obligations if one.demand == "path"]
    assert [one.found for one in found] == ["a name by the clock"]


@pytest.mark.parametrize(
    "asks",
    ["subprocess.run(['git', 'log'])", "subprocess.run('git log', shell=True, capture_output=True)"],
)
@pytest.mark.parametrize("test", ["found.returncode != 0", "not found.stdout", "found is None"])
def test_what_a_command_gives_to_the_main_process(asks: str, test: str) -> None:
    text = (
        "import subprocess\nfrom accelify.runtime import Accelerator\naccelerator = Accelerator()\n"
        f"def commit():\n    found = {asks}\n    if {test}:\n        return None\n    return found.stdout.strip()\n"
        "accelerator.save({'commit': commit()}, 'a.pt')\n"
    )
    found = validate(text, None, Knowledge()).of(Status.NAMED)
    assert [one.demand for one in found] == ["once"]
