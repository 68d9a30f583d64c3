"""Models that train themselves, and agents, trainers and factories whose models other files make or keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH
from tests.transforms.test_real_kinds import HEAD, LOOP, converted, script

LOADER = "loader = DataLoader(data, batch_size=4)\n"
SGD = "torch.optim.SGD({}.parameters(), lr=0.1)"
TORCH = "import torch\nfrom torch import nn\n\n\n"


def project(tmp_path: Path, **modules: str) -> dict[str, str]:
    """The modules of a project as they are after conversion, by name; `main` is the script."""
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "main.py"))
    assert found[0].status == "converted" or len(found) > 1, found[0].reason
    texts = {Path(str(c.source.path)).stem: c.new_text for c in found}
    for name, text in texts.items():
        compile(text, name, "exec", dont_inherit=True)
    return {name: texts.get(name, text) for name, text in modules.items()}


def refusal(tmp_path: Path, **modules: str) -> Conversion:
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    (found,) = convert_project(Source.read(tmp_path / "main.py"))
    assert found.status == "refused"
    return found


AGENT = f"""\
class Agent(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, 1)
        self.optimizer = {SGD.format("self")}

    def forward(self, x):
        return self.fc(x)

    def learn(self, x, y):
        loss = (self.forward(x) - y).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
LEARNS = "for x, y in loader:\n    agent.learn(x, y)\n"


def test_a_module_of_another_file_that_trains_itself(tmp_path: Path) -> None:
    texts = project(
        tmp_path,
        main=HEAD + "from agent import Agent\n\nagent = Agent(3)\n" + LOADER + LEARNS,
        agent=TORCH + AGENT,
    )
    assert "agent = Agent(accelerator, 3)\n" in texts["main"]
    assert "agent, loader = accelerator.prepare(agent, loader)\n" in texts["main"]
    assert "accelerator.unwrap_model(agent).learn(x, y)\n" in texts["main"]
    assert (
        "def __init__(self, accelerator, size):\n        super().__init__()\n        self.accelerator = accelerator\n"
        in texts["agent"]
    )
    assert "self.optimizer = self.accelerator.prepare(self.optimizer)\n" in texts["agent"]
    assert "self.accelerator.backward(loss)\n" in texts["agent"]


def test_a_module_that_is_copied_keeps_no_accelerator(tmp_path: Path) -> None:
    main = (
        HEAD + "from agent import Agent\n\nagent = Agent(3)\nfirst = copy.deepcopy(agent)\n" + LOADER + LEARNS
    )
    reason = refusal(tmp_path, main=main, agent=TORCH + AGENT).reason
    assert "cannot be handed to `Agent.learn`, where backward is called: `Agent` is copied or saved" in reason


NET = f"""\
class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, 1)
        self.optimizer = {SGD.format("self")}

    def forward(self, x):
        return self.fc(x)
"""
KEEPS_NET = """\
class Learner:
    def __init__(self, size):
        self.net = Net(size)

    def learn(self, x, y):
        loss = (self.net(x) - y).pow(2).mean()
        self.net.optimizer.zero_grad()
        loss.backward()
        self.net.optimizer.step()
"""


@pytest.mark.parametrize("apart", [False, True])
def test_a_network_that_keeps_its_optimizer_made_in_a_class_of_another_file(
    tmp_path: Path, apart: bool
) -> None:
    main = HEAD + "from agent import Learner\n\nagent = Learner(3)\n" + LOADER + LEARNS
    if apart:
        modules = {"agent": TORCH + "from net import Net\n\n\n" + KEEPS_NET, "net": TORCH + NET}
    else:
        modules = {"agent": TORCH + NET + "\n\n" + KEEPS_NET}
    texts = project(tmp_path, main=main, **modules)
    net = texts["net" if apart else "agent"]
    assert "        self.optimizer = self.accelerator.prepare(self.optimizer)\n" in net
    assert "self.net = Net(self.accelerator, size)\n" in texts["agent"]
    assert "self.net = self.accelerator.prepare(self.net)\n" in texts["agent"]
    assert "self.accelerator.unwrap_model(self.net).optimizer.step()\n" in texts["agent"]


def test_a_copied_network_that_keeps_its_optimizer_is_named_as_it_is(tmp_path: Path) -> None:
    main = HEAD + "from agent import Learner\n\nagent = Learner(3)\n" + LOADER + LEARNS
    copied = KEEPS_NET.replace("Net(size)\n", "Net(size)\n        self.old = copy.deepcopy(self.net)\n")
    reason = refusal(tmp_path, main=main, agent="import copy\n" + TORCH + NET + "\n\n" + copied).reason
    assert "`Net` is copied or saved whole" in reason


def test_an_object_of_another_file_that_keeps_model_and_optimizer(tmp_path: Path) -> None:
    """It trains nothing itself; the script steps the optimizer that it keeps."""
    player = f"""\
class Player:
    def __init__(self, size):
        self.policy = nn.Linear(size, 1)
        self.policy_optimizer = {SGD.format("self.policy")}
"""
    loop = """\
from player import Player


class Game:
    def __init__(self):
        self.players = [Player(3) for _ in range(2)]

    def update(self, x, y):
        for player in self.players:
            loss = (player.policy(x) - y).pow(2).mean()
            player.policy_optimizer.zero_grad()
            loss.backward()
            player.policy_optimizer.step()
"""
    main = (
        HEAD
        + "from game import Game\n\ngame = Game()\n"
        + LOADER
        + "for x, y in loader:\n    game.update(x, y)\n"
    )
    texts = project(tmp_path, main=main, game=loop, player=TORCH + player)
    assert "Player(self.accelerator, 3)" in texts["game"]
    assert "self.policy, self.policy_optimizer = self.accelerator.prepare(" in texts["player"]


def test_the_accelerator_goes_through_super_to_the_base_class(tmp_path: Path) -> None:
    base = """\
class Base:
    def __init__(self, lr):
        self.lr = lr
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
    part = """\
from base import Base


class Part(Base):
    def __init__(self, lr):
        CALL
        self.net = nn.Linear(3, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def step(self, x, y):
        loss = (self.net(x) - y).pow(2).mean()
        loss.backward()
        self.optimizer.step()
"""
    main = (
        HEAD
        + "from part import Part\n\npart = Part(0.1)\n"
        + LOADER
        + "for x, y in loader:\n    part.step(x, y)\n"
    )
    texts = project(
        tmp_path, main=main, base=TORCH + base, part=TORCH + part.replace("CALL", "super().__init__(lr)")
    )
    assert "Part(accelerator, 0.1)" in texts["main"]
    assert "super().__init__(lr)" in texts["part"]


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("super().__init__(lr)", "super().__init__(accelerator, lr)"),
        ("super(Part, self).__init__(lr)", "super(Part, self).__init__(accelerator, lr)"),
        ("Base.__init__(self, lr)", "Base.__init__(self, accelerator, lr)"),
    ],
)
def test_the_accelerator_goes_to_a_base_class_that_trains(tmp_path: Path, call: str, after: str) -> None:
    base = """\
class Base:
    def __init__(self, lr):
        self.lr = lr
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
    part = f"""\
from base import Base


class Part(Base):
    def __init__(self, lr):
        {call}
        self.net = nn.Linear(3, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def step(self, x, y):
        self.update((self.net(x) - y).pow(2).mean())
"""
    main = (
        HEAD
        + "from part import Part\n\npart = Part(0.1)\n"
        + LOADER
        + "for x, y in loader:\n    part.step(x, y)\n"
    )
    texts = project(tmp_path, main=main, base=TORCH + base, part=TORCH + part)
    assert f"        {after}\n" in texts["part"]
    assert "self.device = self.accelerator.device\n" in texts["base"]


def test_a_factory_called_in_two_classes() -> None:
    made = """\
def adam(net):
    return torch.optim.Adam(net.parameters())


class One:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.optimizer = adam(self.net)


class Two:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.optimizer = adam(self.net)


one, two = One(), Two()
"""
    loop = """\
for x, y in loader:
    for part in (one, two):
        (part.net(x) - y).pow(2).mean().backward()
        part.optimizer.step()
"""
    assert converted(script(made, LOADER, loop)).count("self.net, self.optimizer = ") == 2


def test_an_optimizer_that_is_made_anew_in_a_method() -> None:
    made = f"""\
class Trainer:
    def __init__(self):
        self.model = nn.Linear(3, 1)
        self.optimizer = {SGD.format("self.model")}
        self.loader = DataLoader(data, batch_size=4)

    def reset(self):
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self):
        for x, y in self.loader:
            (self.model(x) - y).pow(2).mean().backward()
            self.optimizer.step()


trainer = Trainer()
trainer.fit()
trainer.reset()
trainer.fit()
"""
    text = converted(script(made))
    assert "        self.optimizer = self.accelerator.prepare(self.optimizer)\n\n    def fit" in text


@pytest.mark.parametrize("asked", ["model.groups(0.1)", "chosen(model)", "params"])
def test_a_model_that_is_asked_for_parameters_in_its_own_way(asked: str) -> None:
    """Of two models that are trained, none is left out."""
    made = """\
import zoo

model, other = zoo.Net(), nn.Linear(3, 1)
chosen = zoo.chosen
params = model.groups(0.1)
"""
    made += f"optimizer = torch.optim.SGD({asked}, lr=0.1)\noptimizer_2 = {SGD.format('other')}\n"
    loop = LOOP.replace("model(x.to(WHERE))", "(model(x) + other(x))").replace("y.to(WHERE)", "y")
    loop += "    optimizer_2.step()\n    model.zero_grad()\n    model.parameters()\n"
    assert "model, other, optimizer, optimizer_2, loader = accelerator.prepare(" in converted(
        script(made, LOADER, loop)
    )


@pytest.mark.parametrize(
    "chosen",
    [
        "[p for p in [*self.a.parameters(), *self.b.parameters()] if p.requires_grad]",
        "[p for name, p in self.named_parameters() if 'bias' not in name]",
    ],
)
def test_parameters_chosen_from_an_expression(chosen: str) -> None:
    made = f"""\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 1)

    def learn(self, x, y):
        params = {chosen}
        self.optimizer = torch.optim.SGD(params, lr=0.1)
        loss = (self.b(self.a(x)) - y).pow(2).mean()
        loss.backward()
        self.optimizer.step()


agent = Net()
"""
    assert "agent, loader = accelerator.prepare(agent, loader)\n" in converted(script(made, LOADER, LEARNS))


def test_parameters_chosen_in_a_comprehension() -> None:
    made = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 1)
        params = list(self.a.parameters()) + list(self.b.parameters())
        self.optimizer = torch.optim.SGD([p for p in params if p.requires_grad], lr=0.1)

    def learn(self, x, y):
        loss = (self.b(self.a(x)) - y).pow(2).mean()
        loss.backward()
        self.optimizer.step()


agent = Net()
"""
    assert "agent, loader = accelerator.prepare(agent, loader)\n" in converted(script(made, LOADER, LEARNS))


def test_objects_that_other_files_make_of_a_class_are_none_of_this_script(tmp_path: Path) -> None:
    nets = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.body(x))


if __name__ == "__main__":
    net = Net()
    net.head = nn.Linear(2, 5)
"""
    made = "from nets import Net\n\nmodel = Net()\n"
    groups = ", ".join(f"{{'params': model.{part}.parameters()}}" for part in ("body", "head"))
    made += f"optimizer = torch.optim.SGD([{groups}], lr=0.1)\n"
    texts = project(tmp_path, main=HEAD + made + LOADER + LOOP.replace(".to(WHERE)", ""), nets=TORCH + nets)
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in texts["main"]


def test_a_project_that_moves_tensors_elsewhere_is_not_for_the_cpu(tmp_path: Path) -> None:
    helper = "import torch\n\n\ndef variable(x):\n    return x.cuda() if torch.cuda.is_available() else x\n"
    made = f"from helper import variable\n\nmodel = nn.Linear(3, 1)\noptimizer = {SGD.format('model')}\n"
    loop = LOOP.replace(".to(WHERE)", "").replace("model(x)", "model(variable(x))")
    texts = project(tmp_path, main=HEAD + made + "z = torch.ones(1)\n" + LOADER + loop, helper=helper)
    assert "accelerator = Accelerator()\n" in texts["main"]


def test_an_optimizer_inside_an_optimizer_is_a_part_of_it(tmp_path: Path) -> None:
    outer = """\
class Natural(torch.optim.Optimizer):
    def __init__(self, model, lr):
        super().__init__(model.parameters(), {"lr": lr})
        self.optim = torch.optim.SGD(model.parameters(), lr=lr)

    def step(self):
        self.optim.step()
"""
    made = "from natural import Natural\n\n\ndef main():\n    model = nn.Linear(3, 1)\n"
    made += "    optimizer = Natural(model, 0.1)\n    loader = DataLoader(data, batch_size=4)\n    "
    loop = LOOP.replace("\n", "\n    ").rstrip().replace(".to(WHERE)", "")
    main = HEAD + made + loop + "\n\n\nmain()\n"
    texts = project(tmp_path, main=main, natural=TORCH + outer)
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in texts["main"]
    assert texts["natural"] == TORCH + outer


def test_a_module_that_trains_in_its_forward(tmp_path: Path) -> None:
    """Its parts are trained for it, and a copy of one for a test is no model of the script's."""
    meta = """\
class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.zeros(3, 1))])

    def forward(self, x):
        return x @ self.vars[0]

    def parameters(self):
        return self.vars


class Meta(nn.Module):
    def __init__(self, lr):
        super().__init__()
        self.net = Learner()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def forward(self, x, y):
        loss = (self.net(x) - y).pow(2).mean()
        loss.backward()
        self.optimizer.step()

    def test(self, x):
        net = copy.deepcopy(self.net)
        return net(x)
"""
    main = (
        HEAD
        + "from meta import Meta\n\nmeta = Meta(0.1)\n"
        + LOADER
        + "for x, y in loader:\n    meta(x, y)\n"
    )
    texts = project(tmp_path, main=main, meta="import copy\n" + TORCH + meta)
    assert "meta, loader = accelerator.prepare(meta, loader)\n" in texts["main"]
    assert "self.optimizer = self.accelerator.prepare(self.optimizer)\n" in texts["meta"]


def test_parts_of_a_model_that_cannot_be_seen() -> None:
    made = """\
import zoo

model = zoo.nets["small"]()
groups = [{"params": model.backbone.parameters()}, {"params": model.head.parameters()}]
optimizer = torch.optim.SGD(groups, lr=0.1)
"""
    text = converted(
        script(made, LOADER, LOOP.replace(".to(WHERE)", "") + "model.eval()\nmodel.parameters()\n")
    )
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


def test_functions_that_other_scripts_train_with_are_left_alone(tmp_path: Path) -> None:
    loops = """\
def one(model, optimizer, loader):
    LOOP


def two(model, optimizer, loader):
    LOOP
"""
    loops = loops.replace("LOOP", LOOP.replace(".to(WHERE)", "").replace("\n", "\n    ").rstrip())
    made = f"from loops import one\n\nmodel = nn.Linear(3, 1)\noptimizer = {SGD.format('model')}\n"
    texts = project(
        tmp_path, main=HEAD + made + LOADER + "one(model, optimizer, loader)\n", loops=TORCH + loops
    )
    assert texts["loops"].count("accelerator.backward(loss)") == 1
    assert texts["loops"].endswith(loops[loops.index("def two") :])


VALUE = """\
def value_step(value, optimizer, x):
    loss = value(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def attack(model, x):
    x = x.detach().requires_grad_(True)
    model(x).sum().backward()
    return x.grad
"""
OWN = (
    f"model, value = nn.Linear(3, 1), nn.Linear(3, 1)\noptimizer = {SGD.format('model')}\n"
    f"optimizer_value = {SGD.format('value')}\n" + LOADER
)


def test_a_step_elsewhere_beside_a_loop_of_its_own(tmp_path: Path) -> None:
    loop = LOOP.replace(".to(WHERE)", "") + "    value_step(value, optimizer_value, x)\n"
    texts = project(tmp_path, main=HEAD + "from steps import value_step\n" + OWN + loop, steps=TORCH + VALUE)
    assert "def value_step(accelerator, value, optimizer, x):\n" in texts["steps"]
    assert "    accelerator.backward(loss)\n" in texts["steps"]
    assert "    value_step(accelerator, value, optimizer_value, x)\n" in texts["main"]
    assert "model, value, optimizer, optimizer_value, loader = accelerator.prepare(" in texts["main"]


def test_a_backward_elsewhere_that_trains_nothing(tmp_path: Path) -> None:
    loop = LOOP.replace(".to(WHERE)", "") + "    attack(model, x)\n"
    texts = project(tmp_path, main=HEAD + "from steps import attack\n" + OWN + loop, steps=TORCH + VALUE)
    assert texts["steps"] == TORCH + VALUE
    assert "    attack(model, x)\n" in texts["main"]


ON_A_COPY = """\
import copy


def attack(model, x):
    {copy}
    other.fc = nn.Identity()
    x = x.detach().requires_grad_(True)
    other.eval()
    other(x).sum().backward()
    {use}
    return x.grad
"""
COPY = "other = copy.deepcopy(model)"


@pytest.mark.parametrize(
    ("copied", "use", "unwrapped"),
    [
        (COPY, "x = x + 1", True),
        (COPY, "other.fc.head = None", True),
        (COPY, "model(x).sum().backward()", False),
        (COPY, "x = other.fc.weight.grad", False),
        (COPY, "[p.sub_(p.grad) for p in other.parameters()]", False),
        ("other = copy.deepcopy(model) if x else model", "x = x + 1", False),
    ],
)
def test_a_copy_elsewhere_that_is_only_run(tmp_path: Path, copied: str, use: str, unwrapped: bool) -> None:
    loop = LOOP.replace(".to(WHERE)", "") + "    attack(model, x)\n"
    for name, text in (
        ("main", HEAD + "from steps import attack\n" + OWN + loop),
        ("steps", TORCH + ON_A_COPY.format(copy=copied, use=use)),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    (found,) = convert_project(Source.read(tmp_path / "main.py"))
    assert ("attack(accelerator.unwrap_model(model), x)" in found.new_text) == unwrapped


FILLED = f"""\
parts = nn.ModuleList([])
model = nn.Linear(3, 1)
parts.append(model)
loader = DataLoader(data, batch_size=4)
other = nn.Linear(1, 1)
parts.append(other)
optimizer = {SGD.format("parts")}
"""


def test_a_module_list_is_prepared_when_it_is_full() -> None:
    text = converted(script(FILLED, LOOP.replace("model(x.to(WHERE))", "parts[1](parts[0](x.to(WHERE)))")))
    assert text.index("parts.append(other)") < text.index("parts, optimizer, loader = accelerator.prepare(")


SET = "self.model = nn.Linear(3, 1)"
STEPS = """\
class Engine:
    def fit(self, x):
        self.model.train()
        loss = self.model(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
FROM_BASE = STEPS.replace("class Engine:", "from lib.engine import Base\nclass Engine(Base):")
UNREAD = "of `Engine` is set by no class that can be read, so by `Base`, its base class of lib.engine"
MIXED = f"""\
state = {{"model": nn.Linear(3, 1)}}
state["optimizer"] = {SGD.format('state["model"]')}
for x, y in DataLoader(data, batch_size=4):
    state["optimizer"].zero_grad()
    (state["model"](x) - y).pow(2).mean().backward()
    state["optimizer"].step()
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ON_A_COPY.format(copy=COPY, use="x = x + 1"), "`model` is handed to `attack` by a caller outside"),
        (
            ON_A_COPY.format(copy=COPY, use="other.train()"),
            "`model` is handed to `attack` by a caller outside",
        ),
        (AGENT, "`Agent` trains itself, and no `Agent` is made in this file"),
        (STEPS, "of `Engine` is set outside of this file, by a caller or a subclass"),
        (FROM_BASE, f"`self.model` {UNREAD}"),
        (FROM_BASE.replace("        self.model.train()\n", ""), f"`self.model` {UNREAD}"),
        (FROM_BASE.replace("lib.engine", "abc"), "is set outside of this file, by a caller or a subclass"),
        (MIXED, "is stored in `state`, whose elements are not all of one kind"),
    ],
)
def test_reasons(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in refusal(tmp_path, main=HEAD + text).reason


def test_accelerate_has_no_way_for_a_model_that_trains_itself() -> None:
    text = script(AGENT, "\n\nagent = Agent(3)\n", LOADER, LEARNS)
    found = convert_source(Source.from_text(text, PATH), ConvertOptions(runtime="accelerate"))
    assert found.status == "refused"
    assert "`Agent` trains itself in its own methods" in found.reason


BASE = """\
class Base:
    def __init__(self):
        self.net = None

    def save(self, path):
        print(path)
"""
WORK = f"""{TORCH}from base import Base


class Work(Base):
    def initialize(self, size):
        self.net = nn.Linear(size, 1).cuda()
        self.optimizer = {SGD.format("self.net")}

    def step(self, x, y):
        loss = (self.net(x.cuda()) - y.cuda()).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""


def test_the_base_comes_along_that_makes_the_objects_of_a_class_without_init(tmp_path: Path) -> None:
    made = (
        "from work import Work\nwork = Work()\nwork.initialize(3)\nfor x, y in loader:\n    work.step(x, y)\n"
    )
    texts = project(tmp_path, base=BASE, work=WORK, main=f"{HEAD}{LOADER}{made}")
    assert "    def __init__(self, accelerator):\n        self.accelerator = accelerator\n" in texts["base"]
    assert "self.accelerator.print(path)" in texts["base"]
    assert "self.net, self.optimizer = self.accelerator.prepare(self.net, self.optimizer)" in texts["work"]
    assert "work = Work(accelerator)" in texts["main"]


def test_lines_are_those_of_their_own_file(tmp_path: Path) -> None:
    base = BASE.replace("print(path)", "self.path = path; open(path, 'w').write('kept')")
    main = f"{HEAD}{LOADER}from work import Work\nwork = Work()\nwork.initialize(3)\n"
    for name, text in {
        "base": base,
        "work": WORK,
        "main": f"{main}for x, y in loader:\n    work.step(x, y)\nwork.save('a')\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "main.py"))
    written = [f for c in found for f in c.applied if f.code == "ACC203"]
    lines = base.splitlines()
    assert [(Path(f.path).stem, "open(path" in lines[f.line - 1]) for f in written] == [("base", True)]
    text = next(c.new_text for c in found if c.source.path is not None and c.source.path.stem == "base")
    assert "self.path = path; self.accelerator.is_main_process and open(path, 'w')" in text


PAIR = f"""{TORCH}class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 1)
        self.optimizer = {SGD.format("self.body")}

    def forward(self, x):
        return self.body(x)


def create():
    return Pair()
"""


def test_optimizers_that_a_model_of_another_file_keeps_and_the_script_steps(tmp_path: Path) -> None:
    loop = "model = create()\nfor x, y in loader:\n    loss = (model(x) - y).pow(2).mean()\n"
    steps = "    model.optimizer.zero_grad()\n    loss.backward()\n    model.optimizer.step()\n"
    texts = project(tmp_path, pair=PAIR, main=f"{HEAD}{LOADER}from pair import create\n{loop}{steps}")
    assert "self.optimizer = self.accelerator.prepare(self.optimizer)" in texts["pair"]
    assert "model = create(accelerator)" in texts["main"]
    assert "model, loader = accelerator.prepare(model, loader)" in texts["main"]
