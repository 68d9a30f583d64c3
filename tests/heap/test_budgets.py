"""What of the budget a copy of a library in the project may use up: the script that imports it is read all the same."""

from __future__ import annotations

from textwrap import dedent

import pytest

from accelify.heap.modules import text_of
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

SCRIPT = """
import torch
import torch.distributed as dist
from {name} import create

dist.init_process_group("nccl")
create("first")
for number in range(3):
    print("a round")
"""
COPY = "\n".join(
    [
        "def create(name):",
        *(f"    _{number}(name)" for number in range(20)),
        *(f"\n\ndef _{number}(name):" + "\n    print(name)" * 30 for number in range(20)),
    ]
)


@pytest.mark.parametrize(("name", "is_read"), [("timm", True), ("models", False)])
def test_a_copy_of_a_library_leaves_the_script_its_part(name, is_read, tmp_path):
    (tmp_path / f"{name}.py").write_text(COPY)
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT.format(name=name)))
    found = validate(script.read_text(), script, Knowledge(), text_of, 500, checks=True)
    named = [one for one in found.obligations if one.status is Status.NAMED and one.path == "train.py"]
    assert ([one.line for one in named] == [9]) == is_read


LONG = """
import torch
from accelerate import Accelerator


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)

    def forward(self, x):
        for number in range(3):
            if x.mean() > number:
                x = self.body(x)
{more}
        return x


accelerator = Accelerator()
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.ones(8, 4))
net, opt, loader = accelerator.prepare(net, opt, torch.utils.data.DataLoader(data, 4))
for (x,) in loader:
    accelerator.backward(net(x).mean())
    opt.step()
    if accelerator.process_index == 1:
        break
"""


@pytest.mark.parametrize("lines", [1, 2000])
def test_a_long_forward_leaves_the_script_its_part(lines):
    """What comes after the first call of a model is read, whatever the model's length."""
    text = LONG.format(more="\n".join(["            x = x + self.body(x) * number"] * lines))
    found = validate(text, None, Knowledge(), None, 1000, checks=True)
    named = [one for one in found.obligations if one.status is Status.NAMED]
    assert [text.splitlines()[one.line - 1].strip() for one in named if one.sink == "leave"] == [
        "if accelerator.process_index == 1:"
    ]


def test_a_call_of_a_copy_that_is_cut_off_gives_what_is_not_known(tmp_path):
    """The script goes on after it: that it gives nothing is not known either."""
    (tmp_path / "timm.py").write_text(
        "def create(name):\n" + "    print(name)\n" * 2000 + "    return name\n"
    )
    text = dedent(SCRIPT.format(name="timm")).replace(
        'create("first")', 'if create("first") is None:\n    raise OSError'
    )
    found = validate(text, tmp_path / "train.py", Knowledge(), text_of, 500, checks=True)
    named = [one for one in found.obligations if one.status is Status.NAMED and one.path == "train.py"]
    assert [text.splitlines()[one.line - 1].strip() for one in named] == ['print("a round")']


OF_EACH_BATCH = """
import torch
from accelerate import Accelerator
from timm import create

accelerator = Accelerator()
data = torch.utils.data.TensorDataset(torch.ones(8, 4))
loader = accelerator.prepare(torch.utils.data.DataLoader(data, 4))
for (x,) in loader:
    seen = [create(x), create(x + 1), create(x + 2), create([x]), create((x, x))]
print("done")
"""


def test_a_copy_that_gets_batches_leaves_the_script_its_part(tmp_path):
    (tmp_path / "timm.py").write_text(COPY)
    script = tmp_path / "train.py"
    found = validate(OF_EACH_BATCH, script, Knowledge(), text_of, 5000, checks=True)
    assert found.steps < 5000 // 3
    named = [one for one in found.obligations if one.status is Status.NAMED and one.path == "train.py"]
    assert [OF_EACH_BATCH.splitlines()[one.line - 1] for one in named] == ['print("done")']
