"""Classes that train, derived from one another in the modules of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transforms.test_project_roles import AGENT, LEARNS, LOADER, SGD, TORCH, project, refusal
from tests.transforms.test_real_kinds import HEAD

BASE = f"""\
class Base(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, 1)
        self.optimizer = {SGD.format("self")}

    def learn(self, x, y):
        loss = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
DERIVED = """\
from base import Base


class Agent(Base):
    def __init__(self, size):
        super(Agent, self).__init__(size)

    def loss(self, x, y):
        return (self.fc(x) - y).pow(2).mean()
"""


def test_a_class_that_is_derived_from_one_that_trains_in_a_module_of_its_own(tmp_path: Path) -> None:
    main = HEAD + "from agent import Agent\n\nagent = Agent(3)\n" + LOADER + LEARNS
    texts = project(tmp_path, main=main, base=TORCH + BASE, agent=DERIVED)
    assert "agent = Agent(accelerator, 3)\n" in texts["main"]
    assert "super(Agent, self).__init__(accelerator, size)\n" in texts["agent"]
    assert "self.accelerator.backward(loss)\n" in texts["base"]


@pytest.mark.parametrize("up", ["super()", "super(Other, self)"])
def test_a_derived_class_that_nobody_makes_takes_what_its_base_takes(tmp_path: Path, up: str) -> None:
    main = HEAD + "from agent import Agent\n\nagent = Agent(3)\n" + LOADER + LEARNS
    other = f"\n\nclass Other(Agent):\n    def __init__(self, size):\n        {up}.__init__(size + 1)\n"
    texts = project(tmp_path, main=main, agent=TORCH + AGENT + other)
    assert "agent = Agent(accelerator, 3)\n" in texts["main"]
    first = f"    def __init__(self, accelerator, size):\n        {up}.__init__(accelerator, size + 1)\n"
    assert first in texts["agent"]


@pytest.mark.parametrize(
    "first", ["self.size = size\n        super().__init__(size)", "super().__init__(make(size))"]
)
def test_a_derived_class_that_may_need_it_before_its_base_keeps_it_itself(tmp_path: Path, first: str) -> None:
    main = HEAD + "from agent import Other\n\nagent = Other(3)\n" + LOADER + LEARNS
    made = "def make(size):\n    print(size)\n    return size\n\n\n"
    other = f"\n\n{made}class Other(Agent):\n    def __init__(self, size):\n        {first}\n"
    texts = project(tmp_path, main=main, agent=TORCH + AGENT + other)
    assert "        self.accelerator = accelerator\n" in texts["agent"].partition("class Other")[2]
    assert "super().__init__(self.accelerator, " in texts["agent"].partition("class Other")[2]


def test_what_trains_is_made_by_a_module_that_does_not(tmp_path: Path) -> None:
    main = HEAD + "import factory\n\nagent = factory.make(3)\n" + LOADER + LEARNS
    made = "from agent import Agent\n\n\ndef make(size):\n    return Agent(size)\n"
    texts = project(tmp_path, main=main, agent=TORCH + AGENT, factory=made)
    assert "agent = factory.make(accelerator, 3)\n" in texts["main"]
    assert texts["factory"].endswith("def make(accelerator, size):\n    return Agent(accelerator, size)\n")


def test_a_class_of_the_script_that_is_derived_from_one_that_trains(tmp_path: Path) -> None:
    main = HEAD + DERIVED + "\n\nif __name__ == '__main__':\n    agent = Agent(3)\n    " + LOADER
    texts = project(
        tmp_path, main=main + "    for x, y in loader:\n        agent.learn(x, y)\n", base=TORCH + BASE
    )
    assert "    agent = Agent(accelerator, 3)\n" in texts["main"]
    assert "super(Agent, self).__init__(accelerator, size)\n" in texts["main"]


def test_a_module_keeps_no_accelerator_where_one_of_a_derived_class_is_copied(tmp_path: Path) -> None:
    main = HEAD + "from agent import Agent\n\nagent = Agent(3)\n" + LOADER + LEARNS + "copy.deepcopy(agent)\n"
    derived = DERIVED.replace(
        "    def __init__(self, size):\n        super(Agent, self).__init__(size)\n\n", ""
    )
    reason = refusal(tmp_path, main=main, base=TORCH + BASE, agent=derived).reason
    assert "`Base` is copied or saved whole" in reason


def test_a_model_that_a_base_class_of_another_module_makes_is_called_so(tmp_path: Path) -> None:
    base = TORCH + "\n\nclass Base:\n    def __init__(self, size):\n        self.declare(size)\n\n"
    base += "    def declare(self, size):\n        self.net = nn.Linear(size, 1)\n"
    main = HEAD + "from base import Base\n\n\nclass Agent(Base):\n    def __init__(self, size):\n"
    main += f"        super().__init__(size)\n        self.optimizer = {SGD.format('self.net')}\n\n"
    main += "    def learn(self, x, y):\n        loss = (self.net(x) - y).pow(2).mean()\n        loss.backward()\n"
    main += "        self.optimizer.step()\n\n\nagent = Agent(3)\n"
    texts = project(tmp_path, main=main + LOADER + LEARNS, base=base)
    assert "def __init__(self, accelerator, size):\n        self.accelerator = accelerator" in texts["base"]
    assert "self.net = self.accelerator.prepare(self.net)" in texts["base"]
    taken = base.replace("__init__(self, size)", "__init__(self, size, accelerator=None)")
    reason = refusal(tmp_path, main=main + LOADER + LEARNS, base=taken).reason
    assert "the model `net` is made in base.py by `Base`, a base class that is not converted" in reason
    assert "stored in no" not in reason


LOOKED_UP = """\
import importlib
import torch


class Lazy(dict):
    def __getitem__(self, key):
        return importlib.import_module("nets." + key).Net


class Base:
    def __init__(self, args):
        self.args = args
        self.nets = Lazy()
        {kept}

    def build(self):
        raise NotImplementedError
"""
RUNS = """\
from base import Base
import torch


class {name}(Base):
    def __init__(self, args):
        super().__init__(args)

    def build(self):
        net = self.nets[self.args.net](self.args).float()
        return net

    def learn(self, loader):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in loader:
            loss = (self.net(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
CHOSEN = """\
from one import One
from two import Two

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="small")
args = parser.parse_args()
if args.net == "small":
    kind = One
else:
    kind = Two
"""


def looked_up(kept: str) -> dict[str, str]:
    main = HEAD + CHOSEN + LOADER + "kind(args).learn(loader)\n"
    modules = {name.lower(): RUNS.format(name=name) for name in ("One", "Two")}
    return {"main": main, "base": LOOKED_UP.format(kept=kept), **modules}


def test_a_model_of_a_class_that_is_found_at_run_time(tmp_path: Path) -> None:
    texts = project(tmp_path, **looked_up("self.net = self.build().to(torch.device('cpu'))"))
    assert "        self.net = self.accelerator.prepare(self.net)\n" in texts["base"]
    assert "            self.accelerator.backward(loss)\n" in texts["one"]
    assert "            self.accelerator.backward(loss)\n" in texts["two"]


def test_why_a_model_that_nobody_sets_is_none_is_said_alike_in_every_run(tmp_path: Path) -> None:
    for name, text in looked_up("pass").items():
        (tmp_path / f"{name}.py").write_text(text)
    said = set()
    for seed in "0123":
        command = [sys.executable, "-m", "accelify", "convert", "--diff", str(tmp_path / "main.py")]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        said.add(done.stderr)
    (words,) = said
    assert words.index("`net` of `One` is set outside") < words.index("`net` of `Two` is set outside")
    assert "not converted" not in words


LEARNER = """
class Learner:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def learn(self, loader):
        for x, y in loader:
            loss = self.net(x.cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.show(y)


class Plain(Learner):
    def show(self, y):
        self.shown = y.numpy()


class Loud(Learner):
    def show(self, y):
        self.shown = y.detach().numpy()


class Quiet(Learner):
    def __init__(self, net):
        super().__init__(net)
        self.shown = None

    def show(self, y):
        self.shown = y.float().numpy()
"""
KINDS = 'kinds = {"plain": Plain, "loud": Loud, "quiet": Quiet}\n'
TABLED = "learner = kinds[args.kind](nn.Linear(4, 2).cuda())\nlearner.learn(loader)\n"


def test_each_class_of_a_table_does_what_its_own_methods_do(tmp_path: Path) -> None:
    options = (
        'parser = argparse.ArgumentParser()\nparser.add_argument("--kind")\nargs = parser.parse_args()\n'
    )
    main = f"import argparse\n{HEAD}{LEARNER}{options}{KINDS}{LOADER}{TABLED}"
    text = project(tmp_path, main=main)["main"]
    for read in ("y.cpu().numpy()", "y.detach().cpu().numpy()", "y.float().cpu().numpy()"):
        assert f"self.shown = {read}\n" in text


INITIALIZED = """\
class Wrapper:
    def initialize(self, size):
        self.size = size
        self.fc = nn.Linear(size, 1)
        self.optimizer = {sgd}


class Agent({base}):
    def initialize(self, size):
        Wrapper.initialize(self, size)
        print(size)

    def learn(self, x, y):
        loss = (self.fc(x) - y).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""


def initialized(folder: Path, base: str = "Wrapper", more: str = "") -> dict[str, str]:
    main = HEAD + "from agent import Agent\n\nagent = Agent()\nagent.initialize(3)\n" + LOADER + LEARNS
    text = TORCH + INITIALIZED.format(sgd=SGD.format("self.fc"), base=base)
    return project(folder, main=main, agent=text.replace("class Agent", f"{more}class Agent"))


def test_a_class_without_a_constructor_is_initialized_with_it(tmp_path: Path) -> None:
    texts = initialized(tmp_path)
    assert "agent = Agent()\nagent.initialize(accelerator, 3)\n" in texts["main"]
    taken = "    def initialize(self, accelerator, size):\n        "
    assert taken + "Wrapper.initialize(self, accelerator, size)\n" in texts["agent"]
    assert taken + "self.accelerator = accelerator\n" in texts["agent"]
    assert "self.accelerator.backward(loss)\n" in texts["agent"]


def test_a_constructor_comes_before_what_initializes(tmp_path: Path) -> None:
    made = "class Made(Wrapper):\n    def __init__(self):\n        self.made = True\n\n\n"
    texts = initialized(tmp_path, base="Made", more=made)
    assert "agent = Agent(accelerator)\nagent.initialize(3)\n" in texts["main"]
    assert "    def __init__(self, accelerator):\n        self.accelerator = accelerator\n" in texts["agent"]
