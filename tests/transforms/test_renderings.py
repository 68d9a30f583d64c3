"""Repositories that torch.hub unpacks, pictures that graphviz renders, and helpers that ask with input()."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, codes, convert, frame

HUB = "torch.hub.load('pytorch/vision', 'resnet18')"


def with_helper(tmp_path: Path, helper: str, **snippets: str) -> Conversion:
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "train.py").write_text(frame(imports="from helper import do", **snippets))
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    return conversion


def test_a_repository_of_the_hub() -> None:
    check_transformed("ready", f"net = {HUB}", f"with accelerator.main_process_first():\n    net = {HUB}")


def test_a_repository_that_a_function_returns() -> None:
    setup = f"def make():\n    return {HUB}"
    conversion = convert(setup=setup, ready="teacher = make()")
    assert "ACC205" in codes(conversion)


def test_a_repository_on_disk() -> None:
    check_noop("ready", "net = torch.hub.load('here', 'resnet18', source='local')", "ACC205")


def test_a_repository_that_another_module_loads(tmp_path: Path) -> None:
    helper = f"import torch\ndef do():\n    return {HUB}\n"
    conversion = with_helper(tmp_path, helper, ready="teacher = do()")
    assert "with accelerator.main_process_first():\n    teacher = do()" in conversion.new_text


@pytest.mark.parametrize(
    "made", ["Digraph(format='png')", "graphviz.Graph()", "graphviz.Source('digraph {}')"]
)
def test_graphs_are_rendered_once(made: str) -> None:
    check_transformed(
        "epoch",
        f"graph = {made}\ngraph.render('plot')",
        f"graph = {made}\nif accelerator.is_main_process:\n    graph.render('plot')",
        imports="import graphviz\nfrom graphviz import Digraph",
    )


def test_a_simulator_shows_its_window_once() -> None:
    made = "env = gym.make('CartPole-v0')\nenv.render()"
    text = convert(ready=made, imports="import gym").new_text
    assert "if accelerator.is_main_process:\n    env.render()\n" in text


@pytest.mark.parametrize(
    "made", ["env = gym.make('CartPole-v0')\nframe = env.render()", "env = scenes.make()\nenv.render()"]
)
def test_what_else_renders(made: str) -> None:
    """A picture that the script takes, and what is not known."""
    check_noop("ready", made, "ACC203", imports="import gym, scenes")


def test_graphs_of_another_module(tmp_path: Path) -> None:
    helper = "from graphviz import Digraph\ndef do(name):\n    g = Digraph()\n    g.render(name)\n"
    conversion = with_helper(tmp_path, helper, epoch="do('plot')")
    assert "if accelerator.is_main_process:\n        do('plot')" in conversion.new_text


ASKS = "import os\ndef do(path):\n    if os.path.exists(path) and input('again? ') != 'y':\n        exit()\n"
ANSWERS = "def do(path):\n    return input(path)\n"


@pytest.mark.parametrize(("helper", "call"), [(ASKS, "do('a')"), (ANSWERS, "name = do('a')")])
def test_a_helper_that_asks_is_named(tmp_path: Path, helper: str, call: str) -> None:
    conversion = with_helper(tmp_path, helper, ready=call)
    (finding,) = [f for f in conversion.remaining if f.code == "ACC210"]
    assert "asks with input() (helper.py, line " in finding.message


def test_a_helper_that_asks_and_does_nothing_else(tmp_path: Path) -> None:
    """The main process asks alone."""
    conversion = with_helper(tmp_path, "def do(path):\n    input(path)\n", ready="do('a')")
    assert "if accelerator.is_main_process:\n    do('a')" in conversion.new_text
    assert not [f for f in conversion.remaining if f.code == "ACC210"]
