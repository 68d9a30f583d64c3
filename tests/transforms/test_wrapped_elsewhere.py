"""DataParallel in a module that is not converted with the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import frame

FACTORY = """\
import torch
from torch import nn


def define_net(cuda=True):
    net = nn.Linear(4, 2)
    if cuda:
        net = {made}
    return net


def define(cuda):
    return define_net(cuda)


def choose(several=False):
    if several:
        return define_net()
    return nn.Linear(4, 2)


class Wide(nn.DataParallel):
    pass
"""
PART = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.DataParallel(nn.Linear(4, 2))

    def forward(self, x):
        return self.body(x)
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def converted(folder: Path, nets: str, build: str, imports: str = "import nets") -> Conversion:
    (folder / "nets.py").write_text(nets)
    script = folder / "train.py"
    script.write_text(frame(imports=imports, build=f"{build}\n{SGD}"))
    found = convert_project(Source.read(script))
    assert [c.status for c in found] == ["converted"], found[0].reason
    return found[0]


def said(conversion: Conversion) -> list[tuple[str, int]]:
    prove([conversion], conversion)
    return [(Path(f.path).name, f.line) for f in conversion.remaining if f.code == "ACC712"]


@pytest.mark.parametrize(
    ("imports", "build"),
    [
        ("import nets", "model = nets.define_net()"),
        ("from nets import define_net", "model = define_net(torch.cuda.is_available())"),
        ("from nets import define", "model = define(True)"),
        ("from nets import choose", "model = choose(True)"),
        ("from nets import define", "def build():\n    return define(True)\n\nmodel = build()"),
    ],
)
@pytest.mark.parametrize(
    "made", ["nn.DataParallel(net).cuda()", "torch.nn.DataParallel(module=net)", "Wide(net)"]
)
def test_a_factory_that_wraps_is_named(tmp_path: Path, imports: str, build: str, made: str) -> None:
    conversion = converted(tmp_path, FACTORY.format(made=made), build, imports)
    assert said(conversion) == [("nets.py", 8)]


def test_so_is_a_class_with_a_part_that_is_wrapped(tmp_path: Path) -> None:
    assert said(converted(tmp_path, PART, "model = nets.Net()")) == [("nets.py", 7)]


def test_a_model_that_is_not_trained_is_named_too(tmp_path: Path) -> None:
    build = "judge = nets.define_net()\nmodel = nn.Linear(4, 2)"
    assert said(converted(tmp_path, FACTORY.format(made="nn.DataParallel(net)"), build)) == [("nets.py", 8)]


RUNS = """\
import torch
from torch import nn


def score(net, x, gpus):
    return nn.parallel.data_parallel(net, x, gpus).sum()


def scores(net, x, several=False):
    if several:
        return score(net, x, [0, 1])
    return net(x).sum()
"""


@pytest.mark.parametrize(
    ("call", "named"),
    [("score(model, x, [0])", True), ("scores(model, x, True)", True), ("scores(model, x)", False)],
)
def test_so_is_a_function_that_runs_the_model_on_several_gpus(tmp_path: Path, call: str, named: bool) -> None:
    build = f"model = nn.Linear(4, 2)\n\ndef judge(x):\n    return nets.{call}\n\njudge(torch.ones(1, 4))"
    assert said(converted(tmp_path, RUNS, build)) == [("nets.py", 6)] * named


@pytest.mark.parametrize(
    ("nets", "build"),
    [
        (FACTORY.format(made="net.cuda()"), "model = nets.define_net()"),
        (FACTORY.format(made="nn.DataParallel(net)"), "model = nets.define_net(False)"),
        (FACTORY.format(made="nn.DataParallel(net)").replace("=True", "=False"), "model = nets.define_net()"),
        (FACTORY.format(made="nn.DataParallel(net)"), "model = nets.define(False)"),
        (FACTORY.format(made="nn.DataParallel(net)"), "model = nets.choose()"),
        (FACTORY.format(made="nn.DataParallel(net)"), "model = nets.choose(several=False)"),
        # What the script does not come to is of no concern to it.
        (FACTORY.format(made="nn.DataParallel(net)"), "model = nn.Linear(4, 2)\nprint(nets)"),
        (FACTORY.format(made="nn.SyncBatchNorm.convert_sync_batchnorm(net)"), "model = nets.define_net()"),
        (
            PART.replace("nn.DataParallel(nn.Linear(4, 2))", "nn.Linear(4, 2)  # no DataParallel"),
            "model = nets.Net()",
        ),
    ],
)
def test_where_nothing_wraps_nothing_is_said(tmp_path: Path, nets: str, build: str) -> None:
    assert not said(converted(tmp_path, nets, build))
