"""Loaders that other modules of the project make: classes of their own, functions that give back several things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source

TRAIN = """\
import torch
from torch import nn
from loading import make

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for x, y in {loader}:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CLASS = """\
from torch.utils import data


class PartLoader(data.DataLoader):
    def __init__(self, parts, batch_size=1):
        super().__init__(parts, batch_size)
"""


def convert(
    folder: Path, loading: str, made: str = "train_loader = make()", loader: str = "train_loader"
) -> Conversion:
    (folder / "parts.py").write_text(CLASS)
    (folder / "loading.py").write_text(
        "import numpy\nimport torch\nfrom parts import PartLoader\n\n" + loading
    )
    (folder / "train.py").write_text(TRAIN.format(made=made, loader=loader))
    conversion = convert_project(Source.read(folder / "train.py"))[0]
    assert conversion.status == "converted", conversion.reason
    return conversion


def prepared(text: str) -> set[str]:
    calls = re.findall(r"\.prepare\(([^)]*)\)", text)
    return {name.strip() for call in calls for name in call.split(",")}


def advice(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC402"]


def test_a_class_of_the_project_s_own_is_a_loader(tmp_path: Path) -> None:
    found = convert(tmp_path, "def make():\n    return PartLoader([1, 2])\n")
    assert (
        "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)"
        in found.new_text
    )
    assert not advice(found)


def test_what_a_function_gives_back_on_another_path_is_no_loader_for_its_name(tmp_path: Path) -> None:
    loading = """\
def make(name="graphs"):
    if name == "graph":
        features, labels = torch.tensor(numpy.load("x.npy")), torch.tensor(numpy.load("y.npy"))
        return features, labels
    train_loader = PartLoader([1, 2])
    test_loader = PartLoader([3])
    return train_loader, test_loader
"""
    found = convert(tmp_path, loading, "train_loader, test_loader = make()")
    assert "train_loader = accelerator.prepare(" in found.new_text
    assert not advice(found)


def test_a_loader_that_may_come_from_a_file_is_the_one_that_is_made_else(tmp_path: Path) -> None:
    loading = """\
def make(kept=""):
    if kept:
        train_loader = torch.load(kept, weights_only=False)
        return train_loader
    train_loader = PartLoader([1, 2])
    return train_loader
"""
    found = convert(tmp_path, loading, "train_loader = make('')\ntotal = 0", "train_loader")
    assert prepared(found.new_text) == {"model", "optimizer", "train_loader"}
    assert advice(found) == []
    alone = "def make():\n    return torch.load('kept', weights_only=False)\n"
    assert advice(convert(tmp_path, alone)) != []


def test_a_loader_that_is_kept_nowhere_is_prepared_where_it_is_made(tmp_path: Path) -> None:
    found = convert(tmp_path, "def make():\n    return PartLoader([1, 2])\n", "", "make()")
    assert "for x, y in accelerator.prepare(make()):" in found.new_text
    assert not advice(found)


def test_the_advice_names_what_is_not_shared_out(tmp_path: Path) -> None:
    loading = """\
from records import RecordLoader

def make(records):
    if records:
        return RecordLoader("train.bin")
    return PartLoader([1, 2])
"""
    (message,) = advice(convert(tmp_path, loading, "train_loader = make(1)"))
    assert message.startswith(
        "the training data can come from `RecordLoader`, which is not seen to give torch's DataLoader"
    )
    (message,) = advice(convert(tmp_path, loading.rpartition("    return")[0], "train_loader = make(1)"))
    assert message.startswith("the training data comes from a loader that is not torch's")


@pytest.mark.parametrize("ending", ["break", "raise StopIteration"])
def test_a_counter_of_what_one_process_saw_ends_the_training(tmp_path: Path, ending: str) -> None:
    body = "def train(loader):\n    best, waited = 9.0, 0\n    for x, y in loader:\n"
    body += "        loss = (model(x) - y).mean()\n        loss.backward()\n        optimizer.step()\n"
    body += (
        "        if loss.item() < best:\n            best, waited = loss.item(), 0\n            waited = 0\n"
    )
    body += f"        else:\n            waited += 1\n        if waited > 3:\n            {ending}\n\n"
    call = "try:\n    train(train_loader)\nexcept Exception:\n    pass\n"
    (tmp_path / "parts.py").write_text(CLASS)
    (tmp_path / "loading.py").write_text(
        "from parts import PartLoader\n\ndef make():\n    return PartLoader([1])\n"
    )
    script = TRAIN.split("for x")[0].format(made="train_loader = make()") + body + call
    (tmp_path / "train.py").write_text(script)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert [f.message for f in found.remaining if f.code == "ACC405" and "waited > 3" in f.message]
    plain = script.replace("try:\n    train", "if True:\n    train").replace(
        "except Exception:\n    pass\n", ""
    )
    (tmp_path / "train.py").write_text(plain)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert bool([f for f in found.remaining if f.code == "ACC405"]) == (ending == "break")


def test_each_call_of_a_helper_makes_a_loader_of_its_own(tmp_path: Path) -> None:
    loading = """
def of(split, shuffle=False):
    return torch.utils.data.DataLoader(parts(split), batch_size=2, shuffle=shuffle)

def make():
    train_loader = of("train", shuffle=True)
    test_loader = of("test")
    return train_loader, test_loader
"""
    conversion = convert(tmp_path, loading, made="train_loader, test_loader = make()")
    assert prepared(conversion.new_text) == {"model", "optimizer", "train_loader"}
    both = TRAIN.format(made="train_loader, other = make()", loader="train_loader")
    both += (
        "for x, y in other:\n    nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()\n"
    )
    (tmp_path / "train.py").write_text(both)
    text = convert_project(Source.read(tmp_path / "train.py"))[0].new_text
    assert prepared(text) == {"model", "optimizer", "train_loader", "other"}


def test_each_call_of_a_helper_of_a_helper_makes_a_loader_of_its_own(tmp_path: Path) -> None:
    loading = """
def make(split, shuffle):
    return torch.utils.data.DataLoader(parts(split), batch_size=2, shuffle=shuffle)
"""
    made = """
def get(split, shuffle):
    return split, make(split, shuffle=split == "train")
_, train_loader = get("train", False)
_, test_loader = get("test", True)
"""
    evaluation = "for x, y in test_loader:\n    if made:\n        kept.append(model(x))\nprint(kept)\n"
    (tmp_path / "loading.py").write_text("import torch\n" + loading)
    (tmp_path / "train.py").write_text(TRAIN.format(made=made, loader="train_loader") + evaluation)
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert prepared(conversion.new_text) == {"model", "optimizer", "train_loader"}
    assert {f.code for f in conversion.remaining} == {"ACC303"}


EITHER = """
class Endless:
    def __init__(self, parts):
        self.batches = iter(torch.utils.data.DataLoader(parts, 4))

    def __iter__(self):
        while True:
            yield next(self.batches)


def make(endless=False):
    if endless:
        return Endless([1, 2])
    return torch.utils.data.DataLoader([1, 2], 4)
"""


@pytest.mark.parametrize("endless", [True, False])
def test_what_may_be_no_loader_of_torch_s_is_not_taken_for_placed(tmp_path: Path, endless: bool) -> None:
    loading = EITHER if endless else EITHER.replace("return Endless([1, 2])", "return None")
    train = TRAIN.replace(
        "{made}\nfor x, y in {loader}:", "{made}\nfor _ in range(9):\n    x, y = next(batches)\n{moved}"
    )
    made = "device = torch.device('cuda')\nmodel.to(device)\ntrain_loader = make(True)\nbatches = iter(train_loader)"
    moved = "    x, y = x.to(device), y.to(device)"
    (tmp_path / "loading.py").write_text(f"import torch\n{loading}")
    (tmp_path / "train.py").write_text(train.format(made=made, moved=moved))
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert prepared(conversion.new_text) >= {"train_loader"}
    assert (moved in conversion.new_text) is endless
    assert bool([a for a in advice(conversion) if "`Endless`" in a]) is endless


@pytest.mark.parametrize("other", ["zoo.make()", "loading.make_other()"])
def test_a_loader_that_is_not_seen_in_one_of_several_cases(tmp_path: Path, other: str) -> None:
    """The name is prepared whatever it holds; the advice is of what cannot be seen, not of the name."""
    choice = f"if len('a') > 1:\n    train_loader = loading.make()\nelse:\n    train_loader = {other}"
    made = f"import loading, zoo\n{choice}"
    found = convert(
        tmp_path, "def make():\n    return torch.utils.data.DataLoader([1, 2], 4)\n", made, "train_loader"
    )
    assert prepared(found.new_text) == {"model", "optimizer", "train_loader"}
    (said,) = advice(found)
    assert f"can come from `{other.removesuffix('()')}`, which is not seen to give torch's DataLoader" in said


TWO_CALLERS = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

from loaders import make_loaders


def fit(data, model, optimizer, device):
    loaders = make_loaders(data)
    for x, y in loaders["train"]:
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()


def score(data, model, device):
    loaders = make_loaders(data)
    hits = 0
    for x, y in loaders["val"]:
        hits += (model(x.to(device)).cpu() == y).sum().item()
    return hits


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())
fit(data, model, optimizer, device)
print(score(data, model, device))
"""


def test_a_dictionary_that_two_functions_get_from_one_maker_is_prepared_in_both(tmp_path: Path) -> None:
    (tmp_path / "loaders.py").write_text(
        "from torch.utils.data import DataLoader\n\n\n"
        "def make_loaders(data):\n"
        "    return {name: DataLoader(data, batch_size=8) for name in ('train', 'val')}\n"
    )
    (tmp_path / "train.py").write_text(TWO_CALLERS)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.new_text.count("accelerator.prepare(loader) for name, loader in loaders.items()") == 2
    assert ".to(device)" not in conversion.new_text
