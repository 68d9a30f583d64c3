"""What functions of other modules load, or put on one GPU, in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, frame

WAIT = "accelerator.wait_for_everyone()"
CUDA = "x, y = x.cuda(), y.cuda()"


def converted(folder: Path, helper: str, **snippets: str) -> Conversion:
    (folder / "helper.py").write_text(f"import torch\n\n\n{helper}")
    snippets = {"imports": "import helper", "batch": CUDA} | snippets
    (folder / "train.py").write_text(frame(**snippets))
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    return found[0]


def findings(conversion: Conversion) -> list[tuple[str, int]]:
    found = [f for f in conversion.remaining if f.code in ("ACC207", "ACC118")]
    assert all("helper.py, line " in f.message for f in found)
    return [(f.code, int(f.message.split("helper.py, line ")[1].split(")")[0])) for f in found]


@pytest.mark.parametrize(
    ("helper", "use", "line"),
    [
        ("def read(path):\n    model = torch.load(path)\n    return model\n", "model = helper.read('a')", 5),
        ("def read(net, p):\n    net.load_state_dict(torch.load(p))\n", "helper.read(model, 'a')", 5),
        (
            "def inner(p):\n    state = torch.load(p, weights_only=True)\n    return state\n\n\n"
            "def read(p):\n    return inner(p)\n",
            "model.load_state_dict(helper.read('a'))",
            5,
        ),
        (
            "def load_checkpoint(p):\n    parts = torch.load(p)\n    return parts\n",
            "kept = helper.load_checkpoint('a')",
            5,
        ),
        ("def resume(p):\n    return torch.load(p)\n", "kept = helper.resume('a')", 5),
        (
            "def read(p):\n    parts = torch.load(p)\n    return parts['model'], parts['optimizer']\n",
            "one, other = helper.read('a')",
            5,
        ),
        (
            "class Keeper:\n    def __init__(self, net, path):\n        checkpoint = torch.load(path)\n"
            "        net.load_state_dict(checkpoint['net'])\n",
            "helper.Keeper(model, 'a')",
            6,
        ),
    ],
)
def test_a_checkpoint_that_goes_where_it_was(tmp_path: Path, helper: str, use: str, line: int) -> None:
    assert findings(converted(tmp_path, helper, ready=use)) == [("ACC207", line)]


@pytest.mark.parametrize(
    ("helper", "use"),
    [
        (
            "def read(path):\n    state = torch.load(path, map_location='cpu')\n    return state\n",
            "helper.read('a')",
        ),
        ("def read(path):\n    state = torch.load(path, 'cpu')\n    return state\n", "helper.read('a')"),
        ("def read(path):\n    words = torch.load(path)\n    return words\n", "words = helper.read('a')"),
        ("def read(path):\n    state = torch.load(path)\n    return state\n", "n = 1"),
        (
            "def read(p):\n    kept = torch.load(p)\n    return kept['vocab'], kept['images']\n",
            "a, b = helper.read('a')",
        ),
        ("def make():\n    return torch.zeros(1, device='cuda')\n", "z = helper.make()"),
        ("def find():\n    return torch.device('cuda:0')\n", "device = helper.find()"),
        (
            "def find():\n    found = torch.device('cuda:0')\n    return found, 1\n",
            "device, n = helper.find()",
        ),
        ("def make(d):\n    return d == 'cuda:0' or d in ('cuda:0', 'cpu')\n", "z = helper.make('a')"),
    ],
)
def test_what_lies_where_it_is_told(tmp_path: Path, helper: str, use: str) -> None:
    assert not findings(converted(tmp_path, helper, ready=use))


def test_nothing_is_said_of_a_script_for_the_cpu(tmp_path: Path) -> None:
    helper = "def read(path):\n    state = torch.load(path)\n    return state\n"
    assert findings(converted(tmp_path, helper, ready="state = helper.read('a')")) == [("ACC207", 5)]
    assert not findings(
        converted(tmp_path, helper, ready="device = 'cpu'\nstate = helper.read('a')", batch="")
    )


@pytest.mark.parametrize(
    "made",
    [
        "device = torch.device('cuda:1' if torch.cuda.is_available() else 'cpu')\n        self.x = device",
        "self.x = torch.zeros(3).to('cuda:1')",
        "self.x = torch.zeros(3, device='cuda:2')",
    ],
)
def test_a_gpu_by_its_number(tmp_path: Path, made: str) -> None:
    helper = (
        f"class Data:\n    def __init__(self):\n        self.read()\n\n    def read(self):\n        {made}\n"
    )
    assert findings(converted(tmp_path, helper, ready="more = helper.Data()")) == [("ACC118", 9)]


@pytest.mark.parametrize(("save", "load"), [("save_model", "load_model"), ("put", "fetch")])
def test_a_helper_may_save_under_any_name(tmp_path: Path, save: str, load: str) -> None:
    helper = (
        f"def {save}(net, name):\n    torch.save(net, name)\n\n\n"
        f"def {load}(name):\n    net = torch.load(name, map_location='cpu')\n    return net\n"
    )
    epoch = f"if epoch % 2:\n    helper.{save}(model, 'a')"
    text = converted(tmp_path, helper, epoch=epoch, end=f"last = helper.{load}('a')").new_text
    assert f"{WAIT}\nlast = helper.{load}('a')" in text


NET = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Linear):
    def read(self, path, optimizer):
        checkpoint = torch.load(path{given})
        self.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])

def main():
    model = Net(4, 2)
    if torch.cuda.is_available():
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {call}
    for x, y in DataLoader(data(), batch_size=8):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize(
    ("call", "given"), [("model.read('a', optimizer)", ', map_location="cpu"'), ("print(model)", "")]
)
def test_a_method_without_an_accelerator_loads_to_the_host(call: str, given: str) -> None:
    before = NET.format(call=call, given="")
    after = convert_source(Source.from_text(before, PATH)).new_text
    assert f"torch.load(path{given})" in after


PLACED = """\
def load_checkpoint(path, map_location=None):
    parts = torch.load(path, map_location=map_location)
    return parts


def begun(path):
    return load_checkpoint(path)
"""


def test_a_helper_that_can_be_told_where_to_is_told(tmp_path: Path) -> None:
    build = """\
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = helper.load_checkpoint("a")
    other = helper.load_checkpoint("b", map_location="cpu")
    """
    conversion = converted(tmp_path, PLACED, build=build)
    assert findings(conversion) == []
    assert 'state = helper.load_checkpoint("a", map_location=accelerator.device)\n' in conversion.new_text
    assert 'other = helper.load_checkpoint("b", map_location="cpu")\n' in conversion.new_text


def test_a_helper_that_another_helper_does_not_tell_is_named(tmp_path: Path) -> None:
    conversion = converted(tmp_path, PLACED, ready="state = helper.begun('a')")
    assert findings(conversion) == [("ACC207", 5)]


@pytest.mark.parametrize(("given", "said"), [("", False), (", old=False", False), (", old=True", True)])
def test_a_checkpoint_that_no_call_asks_for(tmp_path: Path, given: str, said: bool) -> None:
    helper = "def fill(net, old=False):\n    if old:\n        net.load_state_dict(torch.load('a'))\n    return net\n"
    found = findings(converted(tmp_path, helper, ready=f"model = helper.fill(model{given})"))
    assert found == ([("ACC207", 6)] if said else [])
