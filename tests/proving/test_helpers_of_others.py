"""What the engine names in modules that are not converted: devices, wrappers and files, met from the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import frame

NET = "class Net(nn.Linear):\n    pass\n\n\n"
BATCH = "x, y = x.cuda(), y.cuda()"


def converted(folder: Path, helper: str, **places: str) -> list[Conversion]:
    (folder / "helper.py").write_text(f"import torch\nfrom torch import nn\n\n\n{NET}{helper}")
    (folder / "train.py").write_text(frame(**({"imports": "import helper"} | places)))
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    prove(found, found[0])
    return found


def named(folder: Path, helper: str, **places: str) -> list[str]:
    """The codes of what is left to name, in the script and in the other module."""
    return [f.code for one in converted(folder, helper, **places) for f in one.remaining]


SCATTER = "return table.scatter_(1, rows.view(-1, 1), 1)"


@pytest.mark.parametrize(
    ("body", "is_named"),
    [
        (f"table = torch.zeros(rows.size(0), 2)\n{SCATTER}", True),
        (f"table = torch.FloatTensor(rows.size(0), 2).zero_()\n{SCATTER}", True),
        (f"table = torch.empty(size=(8, 2)).fill_(0.1)\n{SCATTER}", True),
        (f"table = torch.rand(len(rows), 2) * 0.1\n{SCATTER}", True),
        ("return torch.eye(2)[rows]", True),
        ("return rows.view(-1, 1) == torch.arange(2)", True),
        ("return torch.where(rows > 1, rows, torch.zeros(8))", True),
        ("assert isinstance(rows, torch.LongTensor)\nreturn rows.float()", True),
        ("assert isinstance(rows, (torch.LongTensor, torch.cuda.LongTensor))\nreturn rows.float()", False),
        ("assert isinstance(rows, torch.Tensor)\nreturn rows.float()", False),
        (f"table = torch.zeros(8, 2, device=rows.device)\n{SCATTER}", False),
        (f"table = torch.zeros(8, 2).to(rows.device)\n{SCATTER}", False),
        (f"rows = rows.cpu()\ntable = torch.zeros(8, 2)\n{SCATTER}", False),
        ("return rows * torch.tensor(0.5) + torch.ones(3).sum()", False),
        ("return rows[torch.randperm(len(rows))]", False),
        ("return torch.zeros(rows.shape[0], 2)", False),
    ],
)
def test_a_table_that_is_made_on_the_host(tmp_path: Path, body: str, is_named: bool) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    loss = "t = helper.made(y)\nloss = F.cross_entropy(model(x.cuda()), y.cuda())"
    assert ("ACC710" in named(tmp_path, f"def made(rows):\n{lines}", loss=loss)) is is_named


@pytest.mark.parametrize(
    ("helper", "use", "is_named"),
    [
        ("def use(net):\n    return net.module\n", "helper.use(model)", True),
        (
            "def use(net):\n    return net.module\ndef far(net):\n    return use(net)\n",
            "helper.far(model)",
            True,
        ),
        (
            "def use(net, several=True):\n    if several:\n        net = net.module\n    return net\n",
            "helper.use(model)",
            True,
        ),
        (
            "def use(net, several=True):\n    if several:\n        net = net.module\n    return net\n",
            "helper.use(model, False)",
            False,
        ),
        (
            "def use(net):\n    return net.module if hasattr(net, 'module') else net\n",
            "helper.use(model)",
            False,
        ),
        ("def use(net):\n    return isinstance(net, (Net, nn.Sequential))\n", "helper.use(model)", True),
        ("def use(net):\n    return type(net)(4, 2)\n", "helper.use(model)", True),
        ("def use(net):\n    return isinstance(net, nn.Module)\n", "helper.use(model)", False),
        ("def use(net):\n    return isinstance(net, Net)\n", "helper.use(helper.Net(1, 1))", False),
    ],
)
def test_a_wrapper_that_is_looked_into(tmp_path: Path, helper: str, use: str, is_named: bool) -> None:
    build = "model = helper.Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    assert ("ACC715" in named(tmp_path, helper, build=build, end=f"v = {use}")) is is_named


@pytest.mark.parametrize(
    ("body", "use", "is_named"),
    [
        ("return torch.zeros(3).to('cuda:1')", "helper.made()", True),
        ("return torch.zeros(3, device='cuda:2')", "helper.made()", True),
        ("return torch.zeros(3).cuda(what)", "helper.made(0)", True),
        ("return torch.zeros(3).cuda(what[1])", "helper.made([0, 1])", True),
        ("d = torch.device('cuda:1')\n    return torch.zeros(3, device=d)", "helper.made()", True),
        ("torch.cuda.set_device(0)", "helper.made()", True),
        ("torch.cuda.set_device([int(one) for one in what.split(',')][0])", "helper.made('0')", True),
        ("torch.cuda.set_device(what)", "helper.made(torch.device('cuda'))", False),
        ("return torch.zeros(3, device='cuda')", "helper.made()", False),
        ("return torch.device('cuda:0')", "device = helper.made()", False),
        ("return what == 'cuda:0' or what in ('cuda:0', 'cpu')", "helper.made('a')", False),
        ("Net(4, 2).load_state_dict(torch.load('a'))", "helper.made()", True),
        ("Net(4, 2).load_state_dict(torch.load('a', map_location=what))", "helper.made()", True),
        ("Net(4, 2).load_state_dict(torch.load('a', map_location=what))", "helper.made('cpu')", False),
        ("return torch.load('words')", "words = helper.made()", False),
        (
            "import transformers as t\n    t.AutoModel.from_pretrained('a', device_map='auto')",
            "helper.made()",
            True,
        ),
        (
            "import transformers as t\n    t.AutoModel.from_pretrained('a', device_map='cpu')",
            "helper.made()",
            False,
        ),
    ],
)
def test_a_device_that_is_the_same_for_all(tmp_path: Path, body: str, use: str, is_named: bool) -> None:
    helper = f"def made(what=None):\n    {body}\n"
    assert ("ACC714" in named(tmp_path, helper, batch=BATCH, ready=use)) is is_named
