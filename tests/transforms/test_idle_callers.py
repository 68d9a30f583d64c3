"""Functions that nobody calls, and what they call: the Accelerator reaches the others all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_source
from accelify.source import Source

TOOLS = """\
import json

import torch


def write_notes(notes, path):
    with open(path, "w") as file:
        json.dump(notes, file)


def write_weights(model, path):
    torch.save(model.state_dict(), path)
    write_notes({"at": path}, path + ".json")


def write_table(table, path):
    write_notes({"rows": len(table)}, path)
    print("written")


def train(model, loader, optimizer):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    write_weights(model, "weights.pt")
    write_notes({"done": True}, "done.json")
"""
MAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from tools import train

model = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, loader, optimizer)
"""


def converted(folder: Path, tools: str = TOOLS, **others: str) -> tuple[str, list[str]]:
    """The converted module, and what is left to a person."""
    for name, text in ({"tools": tools, "main": MAIN} | others).items():
        (folder / f"{name}.py").write_text(text)
    found = convert_paths([folder / "main.py"])
    (module,) = [one for one in found if "def train(accelerator" in one.new_text]
    return module.new_text, [f"{f.code} {f.message}" for one in found for f in one.remaining]


def test_a_function_that_nobody_calls_takes_what_it_hands_on(tmp_path: Path) -> None:
    text, left = converted(tmp_path)
    assert "def write_notes(accelerator, notes, path):" in text
    assert "def write_table(accelerator, table, path):" in text
    assert 'write_notes(accelerator, {"rows": len(table)}, path)' in text
    assert left == []


def test_what_it_does_itself_is_no_reason(tmp_path: Path) -> None:
    text, left = converted(tmp_path, TOOLS.replace('    write_notes({"rows": len(table)}, path)\n', ""))
    assert "def write_table(table, path):" in text
    assert left == []


TRAINS = """

def train_plainly(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    write_notes({"done": True}, "done.json")
"""


def test_one_that_trains_and_takes_nothing_is_left_as_it_was(tmp_path: Path) -> None:
    text, left = converted(
        tmp_path, TOOLS + TRAINS.replace('    write_notes({"done": True}, "done.json")\n', "")
    )
    assert text.endswith(TRAINS.replace('    write_notes({"done": True}, "done.json")\n', ""))
    assert left == []


def test_somebody_else_who_calls_it_goes_on_as_before(tmp_path: Path) -> None:
    other = 'from tools import write_table\n\nwrite_table([1], "a.json")\n'
    for name, text in {"tools": TOOLS, "main": MAIN, "other": other}.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = {str(one.source.path): one for one in convert_paths([tmp_path / "main.py"])}
    tools = found[str(tmp_path / "tools.py")].new_text
    assert "def write_table(table, path, accelerator=None):" in tools
    assert 'write_notes(accelerator, {"rows": len(table)}, path)' in tools
    assert str(tmp_path / "other.py") not in found


@pytest.mark.parametrize(
    "decorated", ["@register\ndef write_table", "TABLE = []\n\n\n@TABLE.append\ndef write_table"]
)
def test_one_that_is_registered_is_called_by_others(tmp_path: Path, decorated: str) -> None:
    tools = TOOLS.replace("def write_table", decorated).replace(
        "import torch\n", "import torch\nfrom x import *\n", 1
    )
    text, _ = converted(tmp_path, tools)
    assert "def write_table(table, path):" in text
    assert "def write_notes(notes, path):" in text


LOOKED_UP = {
    "shapes": "class Flat:\n    pass\n\n\nclass Deep:\n    pass\n\n\ndef shape(name):\n    return eval(name)()\n",
    "here": "from tools import *\n\n\ndef shape(name):\n    return eval(name)()\n",
    "kept": "def shape(name):\n    return name.__dict__['shape'] if not isinstance(name, str) else name\n",
    "taken": "import tools\n\n\ndef shape(name):\n    return getattr(tools, name)\n",
}


@pytest.mark.parametrize(
    ("module", "found"),
    [("shapes", False), ("kept", False), ("here", True), ("taken", True)],
)
def test_names_that_are_put_together_are_looked_up_somewhere(
    tmp_path: Path, module: str, found: bool
) -> None:
    tools = TOOLS.replace("import torch\n", f"import torch\nimport {module}\n", 1)
    tools = tools.replace("    for x, y", f'    print({module}.shape("De" + "ep"))\n    for x, y')
    text, _ = converted(tmp_path, tools, **{module: LOOKED_UP[module]})
    assert ("def write_table(table, path):" in text) is found


TRAINER = """\
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def plainly(self, model, loader):
        self.train(model, loader, False)

    def train(self, model, loader, hard):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


model = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
trainer = Trainer()
{run}
"""


@pytest.mark.parametrize(
    ("run", "done"),
    [
        ("trainer.train(model, loader, True)", True),
        ("trainer.plainly(model, loader)", True),
        (
            "trainer.train(model, loader, True)\nprint(trainer.plainly)",
            False,
        ),  # it is handed on, to be called
        ("getattr(trainer, sys.argv[1])(model, loader)\ntrainer.train(model, loader, True)", False),
        ("print(model, loader, trainer)", False),  # other scripts train by it
    ],
)
def test_what_a_method_hands_on_that_nobody_calls(run: str, done: bool) -> None:
    conversion = convert_source(Source.from_text(TRAINER.format(run=run), Path("train.py")))
    assert (conversion.status == "converted") is done
    if done:
        assert "accelerator.prepare(model" in conversion.new_text
        assert "prepare(loader)" in conversion.new_text or ", loader)" in conversion.new_text
    else:
        assert "ACC004" in {f.code for f in conversion.remaining}
