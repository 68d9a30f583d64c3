"""Models and optimizers that are kept elsewhere: in options, in methods of modules, beside another script's own."""

from __future__ import annotations

from pathlib import Path

from accelify.conversion import Conversion
from accelify.convert import convert_paths

LOOP = """\
for x, y in loader:
    loss = nn.functional.cross_entropy({model}(x), y)
    {optimizer}.zero_grad()
    loss.backward()
    {optimizer}.step()
"""
HEAD = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(list(range(8)), batch_size=2)
"""


def indented(text: str, depth: int) -> str:
    return "".join(f"{' ' * depth}{line}" for line in text.splitlines(True))


def converted(folder: Path, *names: str, **modules: str) -> dict[str, Conversion]:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    found = convert_paths([folder / f"{name}.py" for name in names or modules])
    for conversion in found:
        assert conversion.status in ("converted", "unchanged"), conversion.reason
        compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    return {Path(str(c.source.path)).stem: c for c in found}


def test_an_optimizer_in_the_options(tmp_path: Path) -> None:
    train = "def train(model, opt):\n" + indented(LOOP.format(model="model", optimizer="opt.optimizer"), 4)
    main = """
opt = argparse.ArgumentParser().parse_args()
model = nn.Linear(4, 2)
opt.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, opt)
"""
    text = converted(tmp_path, main=HEAD + train + main)["main"].new_text
    assert "model, opt.optimizer, loader = accelerator.prepare(model, opt.optimizer, loader)\n" in text


def test_what_a_caller_gives_an_object(tmp_path: Path) -> None:
    solver = "class Solver:\n    def fit(self):\n" + indented(
        LOOP.format(model="self.model", optimizer="self.optimizer"), 8
    )
    main = """
solver = Solver()
solver.model = nn.Linear(4, 2)
solver.optimizer = torch.optim.SGD(solver.model.parameters(), lr=0.1)
solver.fit()
"""
    text = converted(tmp_path, main=HEAD + solver + main)["main"].new_text
    assert "solver.model, solver.optimizer, loader = accelerator.prepare(" in text


def test_a_method_of_a_module_that_makes_and_trains_another_one(tmp_path: Path) -> None:
    trainer = """
class Trainer(nn.Module):
    def fit(self):
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
""" + indented(LOOP.format(model="net", optimizer="optimizer"), 8)
    text = converted(tmp_path, main=HEAD + trainer + "\nTrainer().fit()\n")["main"].new_text
    assert "        net, optimizer = accelerator.prepare(net, optimizer)\n" in text


UTIL = """\
import torch
from torch.utils.data import DataLoader

def make_optimizer(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return optimizer

def loader_of():
    return DataLoader(list(range(8)), batch_size=2)
"""
FIRST = """\
from torch import nn
from util import loader_of, make_optimizer

def make_loader():
    return loader_of()

def main():
    model = nn.Linear(4, 2)
    optimizer = make_optimizer(model)
    loader = make_loader()
""" + indented(LOOP.format(model="model", optimizer="optimizer"), 4)
SECOND = """\
from torch import nn
from first import make_loader
from util import make_optimizer

def main():
    loader = make_loader()
    classifier = nn.Linear(4, 2)
    optimizer = make_optimizer(classifier)
""" + indented(LOOP.format(model="classifier", optimizer="optimizer"), 4)
GUARD = '\nif __name__ == "__main__":\n    main()\n'


def test_the_main_of_an_imported_script_does_not_run(tmp_path: Path) -> None:
    found = converted(tmp_path, "second", util=UTIL, first=FIRST + GUARD, second=SECOND + GUARD)
    assert list(found) == ["second"]
    assert "classifier, optimizer, loader = accelerator.prepare(" in found["second"].new_text


def test_what_another_script_calls_too_makes_an_accelerator_where_it_gets_none(tmp_path: Path) -> None:
    first = FIRST.replace("    loader = make_loader()\n", "").replace("in loader:", "in make_loader():")
    found = converted(tmp_path, "first", util=UTIL, first=first + GUARD, second=SECOND + GUARD)["first"]
    assert "def make_loader(accelerator=None):" in found.new_text
    assert "in make_loader(accelerator=accelerator):" in found.new_text
    assert "ACC409" not in {finding.code for finding in found.remaining}


def test_what_is_loaded_together_is_prepared_together(tmp_path: Path) -> None:
    load = """
def load(path):
    global model, optimizer
    with open(path, "rb") as f:
        model, optimizer = torch.load(f, weights_only=False)

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    text = converted(tmp_path, main=HEAD + load + LOOP.format(model="model", optimizer="optimizer"))["main"]
    assert "        model, optimizer = accelerator.prepare(model, optimizer)\n" in text.new_text


def test_an_optimizer_that_only_a_scaler_steps(tmp_path: Path) -> None:
    made = """
def made(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return optimizer, 3

scaler = torch.cuda.amp.GradScaler()
model = nn.Linear(4, 2)
optimizer, rest = made(model)
for x, y in loader:
    model.zero_grad()
    scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    text = converted(tmp_path, main=HEAD + made)["main"].new_text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


def test_what_is_made_in_two_branches_of_a_branch_is_prepared_in_there(tmp_path: Path) -> None:
    learner = """
class Learner:
    def __init__(self, small, idle=False):
        self.model = nn.Linear(4, 2)
        if not idle:
            if small:
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            else:
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)
            print(self.optimizer)
        else:
            self.idle = True

    def train(self):
""" + indented(LOOP.format(model="self.model", optimizer="self.optimizer"), 8)
    text = converted(tmp_path, main=HEAD + learner + "\nLearner(True).train()\n")["main"].new_text
    assert "            self.optimizer = accelerator.prepare(self.optimizer)\n" in text


def test_of_a_dictionary_only_what_is_shared_out_is_prepared(tmp_path: Path) -> None:
    loaders = "def loaders():\n    return {'train': DataLoader([1], 2), 'val': DataLoader([2], 2)}\n"
    trainer = """
class Trainer:
    def __init__(self, model, optimizer, loaders):
        self.model, self.optimizer, self.loaders = model, optimizer, loaders

    def train(self):
        for x, y in self.loaders["train"]:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def validate(self):
        total = 0.0
        with torch.no_grad():
            for x, y in self.loaders["val"]:
                total += self.outputs(x, y)
        return total

    def outputs(self, x, y):
        return nn.functional.cross_entropy(self.model(x), y).item()

def main():
    model = nn.Linear(4, 2)
    kept = loaders()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, optimizer, kept)
    trainer.train()
    print(trainer.validate())

main()
"""
    head = HEAD.replace(
        "loader = DataLoader(list(range(8)), batch_size=2)\n", "from loading import loaders\n"
    )
    text = converted(
        tmp_path, "main", loading=f"from torch.utils.data import DataLoader\n\n{loaders}", main=head + trainer
    )["main"].new_text
    assert '    kept["train"] = accelerator.prepare(kept["train"])\n' in text
    assert 'kept["val"]' not in text


def test_a_class_that_is_handed_its_model_says_so(tmp_path: Path) -> None:
    agent = """
class Agent:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def update(self, loader):
""" + indented(LOOP.format(model="self.model", optimizer="self.optimizer"), 8)
    alone = converted(tmp_path, main=HEAD + agent)["main"]
    assert [f.line for f in alone.remaining if f.code == "ACC415"]
    together = converted(tmp_path, main=HEAD + agent + "\nAgent(nn.Linear(4, 2)).update(loader)\n")["main"]
    assert not [f for f in together.remaining if f.code == "ACC415"]


def test_models_that_a_module_makes_by_name_and_hands_on_in_a_tuple(tmp_path: Path) -> None:
    zoo = """
from torch import nn

def small(width):
    return nn.Linear(width, 2)
"""
    main = """
import zoo

def main():
    config = {"name": "small"}
    model, teacher = build(config)
    optimizer, other = choose(model, teacher)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x) + teacher(x), y)
        optimizer.zero_grad()
        other.zero_grad()
        loss.backward()
        optimizer.step()
        other.step()


def build(config):
    model = zoo.__dict__[config["name"]](4).cuda()
    teacher = zoo.__dict__[config["name"]](4).cuda()
    return model, teacher


def choose(model, teacher):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return optimizer, torch.optim.SGD(teacher.parameters(), lr=0.1)


main()
"""
    text = converted(tmp_path, "main", main=HEAD + main, zoo=zoo)["main"].new_text
    assert (
        "model, teacher, optimizer, other = accelerator.prepare(model, teacher, optimizer, other)\n" in text
    )


def test_models_in_the_attributes_of_another_modules_object(tmp_path: Path) -> None:
    nets = """
from torch import nn

class Nets:
    def __init__(self):
        encoder = nn.Linear(4, 4)
        self.encoder = encoder.cuda()
        self.decoder = nn.Linear(4, 2).cuda()
"""
    trainer = """
from nets import Nets

class Trainer:
    def build(self):
        self.nets = Nets()
        self.optimizer = torch.optim.SGD([*self.nets.encoder.parameters(), *self.nets.decoder.parameters()], lr=0.1)

    def fit(self):
        self.build()
""" + indented(
        LOOP.format(model="self.nets.decoder(self.nets.encoder", optimizer="self.optimizer"), 8
    ).replace("(x)", "(x))")
    text = converted(tmp_path, "main", main=HEAD + trainer + "\nTrainer().fit()\n", nets=nets)[
        "main"
    ].new_text
    assert (
        "        self.nets.encoder, self.nets.decoder, self.optimizer = accelerator.prepare(\n"
        "            self.nets.encoder, self.nets.decoder, self.optimizer\n"
        "        )\n"
    ) in text


WARMING = """
class Warming:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()
"""
CHOOSING = """
import os
from warming import Warming

def main(loader):
    if os.path.exists("file.pt"):
        file = torch.load("file.pt")
        model = file["model"]
        optimizer = file["optimizer"]
    else:
        model = nn.Linear(4, 2)
        if os.environ:
            optimizer = Warming(torch.optim.SGD(model.parameters(), lr=0.1))
        else:
            optimizer = Warming(torch.optim.Adam(model.parameters(), lr=0.1))
"""


def test_an_optimizer_kept_in_an_object_is_prepared_behind_all_paths(tmp_path: Path) -> None:
    """Made in either branch or brought by a checkpoint, it is the one that trains."""
    loop = indented(LOOP.format(model="model", optimizer="optimizer"), 4)
    main = HEAD + CHOOSING + loop + "\nmain(loader)\n"
    text = converted(tmp_path, "main", main=main, warming=WARMING)["main"].new_text
    prepared = [line.strip() for line in text.splitlines() if "optimizer.optimizer" in line]
    assert prepared == ["model, optimizer.optimizer = accelerator.prepare(model, optimizer.optimizer)"]


def test_what_a_constructor_keeps_first_is_prepared_behind_the_accelerator(tmp_path: Path) -> None:
    solver = """
class Solver:
    def __init__(self, loader):
        self.loader = loader
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.build()

    def build(self):
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model.to(self.device)

    def fit(self):
""" + indented(
        LOOP.format(model="self.model", optimizer="self.optimizer").replace("in loader", "in self.loader"), 8
    )
    main = "\nsolver = Solver(DataLoader(list(range(8)), batch_size=2))\nsolver.fit()\n"
    text = converted(tmp_path, main=HEAD + solver + main)["main"].new_text
    assert (
        "        self.loader = loader\n"
        "        self.accelerator = Accelerator()\n"
        "        self.device = self.accelerator.device\n"
        "        self.loader = self.accelerator.prepare(self.loader)\n"
    ) in text


def test_what_only_a_function_reads_that_not_every_run_calls(tmp_path: Path) -> None:
    fit = "def fit():\n" + indented(LOOP.format(model="model", optimizer="optimizer"), 4)
    main = """
options = argparse.ArgumentParser().parse_args()
model = nn.Linear(4, 2)
if options.mode == "train":
    if options.adam:
        optimizer = torch.optim.Adam(model.parameters())
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(model)
if options.mode == "train":
    fit()
"""
    text = converted(tmp_path, main=HEAD + fit + main)["main"].new_text
    assert any(line.startswith("model") and "prepare(model" in line for line in text.splitlines())
    assert "        optimizer = accelerator.prepare(optimizer)\n" in text


def test_a_model_that_a_function_nobody_calls_would_make(tmp_path: Path) -> None:
    nets = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)

    @classmethod
    def from_pretrained(cls, path):
        model = Net()
        model.load_state_dict(torch.load(path))
        return model

    def optimizer(self):
        return torch.optim.SGD([p for n, p in self.named_parameters()], lr=0.1)
"""
    main = "from nets import Net\n\nmodel = Net()\noptimizer = model.optimizer()\n"
    main += LOOP.format(model="model", optimizer="optimizer")
    text = converted(tmp_path, "main", main=HEAD + main, nets=nets)["main"].new_text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text or (
        "model, optimizer = accelerator.prepare(model, optimizer)\n" in text
    )


def test_a_trainer_of_the_name_of_its_file_and_folder(tmp_path: Path) -> None:
    trainer = """
import torch
from torch import nn

class learner:
    def __init__(self, device):
        self.net = nn.Linear(3, 1).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.device = device

    def train(self):
        loss = self.net(torch.ones(4, 3).to(self.device)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""
    main = """
import learner
import torch

learning = learner.learner(torch.device("cuda"))
for _ in range(3):
    print(learning.train())
"""
    folder = tmp_path / "learner"
    folder.mkdir()
    text = converted(folder, "main", main=main, learner=trainer)["learner"].new_text
    assert "accelerator.backward(loss)" in text
    assert "accelerator.prepare(" in text


def test_a_method_of_a_model_beside_another_is_no_model(tmp_path: Path) -> None:
    """`model.forward` runs as the model does; by a name of its own it is nothing to prepare."""
    made = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    show = "def show(density):\n    return density(torch.randn(2, 4))\n\n\n"
    loop = LOOP.format(model="model", optimizer="optimizer")
    end = "mode, density = model.eval, model.forward\nshow(density)\n"
    text = converted(tmp_path, main=HEAD + show + made + loop + end)["main"].new_text
    assert text.count("accelerator.prepare(") == 1
    assert text.endswith(end)
    second = "mode, density = model.eval, nn.Linear(4, 2)\nshow(density)\n"
    assert second in converted(tmp_path, main=HEAD + show + made + loop + second)["main"].new_text
