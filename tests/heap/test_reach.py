"""What the engine comes to: rows along other axes, functions that libraries call or nothing does, lifetimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import os
import threading
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
"""
ACCURACY = """
def accuracy(output, target, k):
    _, found = output.topk(k, 1, True, True)
    found = found.t()
    right = found.eq(target.view(1, -1).expand_as(found))
    return right[:k].view(-1).float().sum(0)
right = count = 0
for x, y in loader:
    output, y = accelerator.gather_for_metrics((model(x), y))
"""


def obligations(text: str, demand: str) -> list[Obligation]:
    found = validate(HEAD + text, None, KNOWLEDGE).obligations
    return [one for one in found if one.demand == demand]


def status(text: str, demand: str) -> list[Status]:
    return [one.status for one in obligations(text, demand)]


def test_rows_that_lie_along_the_second_axis() -> None:
    text = f"{ACCURACY}    right += accuracy(output, y, 1).item()\naccelerator.print(right)\n"
    assert status(text, "content") == [Status.PROVED]


@pytest.mark.parametrize(
    "product", ["output @ output.t()", "output @ output.T", "torch.cdist(output, output)"]
)
def test_rows_that_meet_other_rows(product: str) -> None:
    text = f"{ACCURACY}    right += ({product}).sum()\naccelerator.print(right)\n"
    assert status(text, "content") == [Status.NAMED]


def test_a_product_of_the_same_name_as_an_operator() -> None:
    share = "y.float().sum().mul_(100.0 / y.size(0)).item() * y.size(0)"
    text = f"{ACCURACY}    right += {share}\naccelerator.print(right)\n"
    assert status(text, "content") == [Status.PROVED]


def test_a_few_elements_each_in_its_turn() -> None:
    text = """
class Meter:
    sum = 0.0
one, other = Meter(), Meter()
for x, y in loader:
    one.sum += x.sum().item()
    other.sum += y.sum().item()
for meter in (one, other):
    meter.sum = accelerator.reduce(meter.sum, reduction="sum")
accelerator.print(one.sum, other.sum)
"""
    assert status(text, "content") == [Status.PROVED]
    assert status(text.replace("(one, other):", "(one,):"), "content") == [Status.NAMED]


def test_a_library_calls_what_it_is_given() -> None:
    text = "def work(n):\n    print(n)\nthreading.Thread(target=work, args=(1,)).start()\n"
    assert status(text, "once") == [Status.NAMED]


def test_functions_that_nothing_calls_where_nothing_else_trains() -> None:
    text = "def train():\n    print('begins')\n"
    assert status(text, "once") == [Status.NAMED]
    trains = "for x, y in loader:\n    accelerator.backward(model(x).mean())\n"
    assert status(text + trains, "once") == []


TRAINER = """
class Trainer:
    def __init__(self, accelerator, folder):
        self.accelerator = accelerator
    def save(self, weights):
        self.accelerator.save(weights, "w.pt")
        if self.accelerator.is_main_process:
            os.remove("old.pt")
def show(*, accelerator=None):
    accelerator.print("done")
"""


def test_what_another_script_calls_gets_the_accelerator() -> None:
    assert set(status(TRAINER, "once")) == {Status.PROVED}
    assert Status.NAMED in status(TRAINER.replace("if self.accelerator.is_main_process", "if folder"), "once")


@pytest.mark.parametrize("of", ["super()", "super({}, self)"])
def test_super_of_every_level(of: str) -> None:
    text = f"""
class A:
    def __init__(self, a):
        self.a = a
class B(A):
    def __init__(self, a):
        {of.format("B")}.__init__(a)
class C(B):
    def __init__(self, a):
        {of.format("C")}.__init__(a)
total = 0
for x, y in loader:
    total += C(x.sum()).a
accelerator.print(total)
"""
    found = validate(HEAD + text, None, KNOWLEDGE)
    assert found.unread == []
    assert [one.status for one in found.obligations if one.demand == "content"] == [Status.NAMED]
    assert status(text.replace("x.sum()", "accelerator.reduce(x.sum())"), "content") == [Status.PROVED]


def test_the_main_process_alone_has_the_file() -> None:
    text = 'log = open("log" if accelerator.is_main_process else os.devnull, "w")\nlog.write("x")\n'
    assert Status.NAMED not in status(text, "once")
    assert Status.NAMED in status(text.replace(" if accelerator.is_main_process else os.devnull", ""), "once")


def test_models_that_a_loop_prepares_anew() -> None:
    text = "for n in range(3):\n    net = accelerator.prepare(torch.nn.Linear(2, n))\n"
    assert status(text, "let go") == [Status.NAMED]
    assert status(f"{text}    accelerator.free_memory()\n", "let go") == []


@pytest.mark.parametrize(
    ("loop", "found"),
    [
        ("for step in ['data', 'net']:\n    getattr(made, step)()\n", []),
        ("for step in (made.data, made.net):\n    step()\n", []),
        ("for number in range(3):\n    made.net()\n", [Status.NAMED]),
    ],
)
def test_a_loop_that_calls_each_function_once_prepares_one_model(loop: str, found: list[Status]) -> None:
    made = (
        "class Made:\n    def data(self):\n        self.x = 1\n    def net(self):\n"
        "        self.model = accelerator.prepare(torch.nn.Linear(2, 1))\nmade = Made()\n"
    )
    assert status(made + loop, "let go") == found


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("number < len(loader)", []),
        ("len(loader) > number", []),
        ("number != total", []),
        ("number < 1000", ["rounds"]),
    ],
)
def test_a_loop_that_counts_the_batches_of_a_loader(test: str, found: list[str]) -> None:
    text = f"""\
total = 2 * len(loader)
batches, number = iter(loader), 0
while {test}:
    x, y = next(batches)
    accelerator.backward(net(x).mean())
    number += 1
"""
    named = validate(HEAD + text, None, KNOWLEDGE).of(Status.NAMED)
    assert [one.demand for one in named if one.sink == "draw"] == found


def test_models_that_are_all_in_one_list_are_let_go_of_with_it() -> None:
    text = "nets = [accelerator.prepare(torch.nn.Linear(2, n)) for n in range(3)]\n"
    assert status(text, "let go") == []
    again = f"for fold in range(2):\n    {text}"
    assert status(again, "let go") == [Status.NAMED]


def test_relative_imports_of_a_script_that_is_run_as_a_module(tmp_path: Path) -> None:
    folder = tmp_path / "pkg" / "sub"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder.parent / "utils.py").write_text("def show(text):\n    print(text)\n")
    for line, at in (("from ..utils import show", "show(1)"), ("from .. import utils", "utils.show(1)")):
        text = f"import torch\n{line}\nfrom accelify.runtime import Accelerator\nAccelerator()\n{at}\n"
        found = validate(text, folder / "train.py", KNOWLEDGE)
        assert found.unread == []
        assert [one.demand for one in found.of(Status.NAMED)] == ["once"]


def test_a_script_that_imports_what_is_called_like_itself(tmp_path: Path) -> None:
    scripts, modules = tmp_path / "scripts", tmp_path / "src"
    scripts.mkdir()
    modules.mkdir()
    (modules / "train.py").write_text("def show(text):\n    print(text)\n")
    place = 'os.path.join(os.path.dirname(__file__), "..", "src")'
    text = f"import os, sys\nsys.path.insert(0, {place})\nfrom train import show\n"
    text += "from accelify.runtime import Accelerator\nAccelerator()\nshow(1)\n"
    (scripts / "train.py").write_text(text)
    found = validate(text, scripts / "train.py", KNOWLEDGE)
    assert [one.demand for one in found.of(Status.NAMED)] == ["once"]


def test_rounds_that_draw_from_a_shared_loader() -> None:
    text = """
batches = iter(loader)
for step in range(100):
    x, y = next(batches)
    accelerator.backward(model(x).mean())
"""
    assert Status.NAMED in status(text, "rounds")
    assert status(text.replace("range(100)", "range(len(loader))"), "rounds") == []


def test_a_name_by_the_clock() -> None:
    text = 'import time\nos.makedirs(f"runs/{time.time()}", exist_ok=True)\n'
    assert status(text, "path") == [Status.NAMED]


def test_a_download_that_nothing_asks_for() -> None:
    text = "import torchvision\ntorchvision.datasets.MNIST('data', download=True)\n"
    assert status(text, "once") == [Status.NAMED]
    assert status(text.replace("True", "False"), "once") == []


def test_what_a_module_does_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("print('imported')\n")
    script = tmp_path / "train.py"
    script.write_text(f"{HEAD}import helper\n")
    found = validate(script.read_text(), script, KNOWLEDGE)
    assert [(one.path, one.line) for one in found.of(Status.NAMED)] == [("helper.py", 1)]


def test_a_method_that_is_asked_of_an_unknown_object() -> None:
    text = """
class Judge:
    def assess(self, model):
        print(model)
for judge in [globals()[name]() for name in torch.load("names")]:
    judge.assess(model)
for x, y in loader:
    accelerator.backward(model(x).mean())
"""
    found = validate(HEAD + text, None, KNOWLEDGE).unread
    assert [(one.text, one.line) for one in found] == [("`assess` of what may be an object of Judge", 14)]
    known = text.replace("globals()[name]()", "Judge()")
    assert validate(HEAD + known, None, KNOWLEDGE).unread == []
    assert status(known, "once") == [Status.NAMED]


def test_one_function_does_not_use_up_the_budget() -> None:
    steps = "    size = size + 1\n" * 20
    text = f"settings = {{'size': 0}}\ndef grow():\n    size = settings['size']\n{steps}    settings['size'] = size\n"
    text += "grow()\n" * 300
    text += "total = 0\nfor x, y in loader:\n    total += x.sum()\naccelerator.print(total)\n"
    found = validate(HEAD + text, None, KNOWLEDGE, budget=5000)
    assert not found.stopped
    assert [one.status for one in found.obligations if one.demand == "content"] == [Status.NAMED]
    assert [one.text for one in found.unread] == ["`grow` is called in too many ways"]
