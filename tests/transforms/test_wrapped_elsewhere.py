"""DataParallel in a module that is not converted with the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
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


def said(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC109"]


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
    assert len(said(conversion)) == 1
    assert said(conversion)[0].startswith("`define_net` wraps a model in DataParallel (nets.py, line 8)")
    assert said(conversion)[0].endswith("in files that were saved with it")
    assert "# TODO(accelify ACC712): take the DataParallel out of `define_net`" in conversion.new_text


def test_so_is_a_class_with_a_part_that_is_wrapped(tmp_path: Path) -> None:
    messages = said(converted(tmp_path, PART, "model = nets.Net()"))
    assert len(messages) == 1
    assert messages[0].startswith("`Net` wraps a model in DataParallel (nets.py, line 7)")


def test_a_model_that_is_not_trained_is_named_too(tmp_path: Path) -> None:
    build = "judge = nets.define_net()\nmodel = nn.Linear(4, 2)"
    messages = said(converted(tmp_path, FACTORY.format(made="nn.DataParallel(net)"), build))
    assert len(messages) == 1
    assert messages[0].endswith("take the wrapper out there")


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
    messages = said(converted(tmp_path, RUNS, build))
    assert len(messages) == named
    start = "`score` runs a model by data_parallel (nets.py, line 6), which of several processes only that on"
    assert all(message.startswith(start) for message in messages)


TWIN = """\
from torch import nn


class Twins:
    def twin_of(self, net):
        if isinstance(net, nn.DataParallel):
            twin = nn.DataParallel({kind}(net.module)(net.module.size))
        else:
            twin = {kind}(net)(net.size)
            {more}
        twin.load_state_dict(net.state_dict())
        return twin
"""


@pytest.mark.parametrize(("kind", "more"), [("type", "pass"), ("type", "print(net(1))"), ("repr", "pass")])
def test_a_twin_of_the_models_class_is_made_of_the_model_itself(tmp_path: Path, kind: str, more: str) -> None:
    """It is in no DataParallel then, and the script's wrapper has another class and none of its attributes."""
    build = "twins = nets.Twins()\nmodel = nn.DataParallel(nn.Linear(4, 2))\n"
    (tmp_path / "nets.py").write_text(TWIN.format(kind=kind, more=more))
    use = "twin = twins.twin_of(model) if i == 7 else model\ntwin(x)"
    script = tmp_path / "train.py"
    script.write_text(frame(imports="import nets", build=f"{build}{SGD}", update=f"optimizer.step()\n{use}"))
    conversion = convert_project(Source.read(script))[0]
    assert not said(conversion)
    handed = "accelerator.unwrap_model(model)" if (kind, more) == ("type", "pass") else "model"
    assert f"twin = twins.twin_of({handed}) if i == 7" in conversion.new_text


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
