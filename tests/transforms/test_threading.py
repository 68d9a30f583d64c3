"""The accelerator parameter of functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_paths, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


def show(text):
    {show}(text)


def train({first}model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        {backward}
        optimizer.step()


def main():
    {made}model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=8)
    {prepare}for epoch in range(3):
        {call}


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("train(model, loader, optimizer)", "train(accelerator, model, loader, optimizer)"),
        ("train(loader=loader, model=model, optimizer=optimizer)",
         "train(accelerator, loader=loader, model=model, optimizer=optimizer)"),
        ("train(*(model, loader, optimizer)[:0], model, loader, optimizer)", None),
        ("train(\n            model,\n            loader, optimizer)",
         "train(\n            accelerator,\n            model,\n            loader, optimizer)"),
    ],
)  # fmt: skip
def test_function_and_calls(call: str, after: str | None) -> None:
    before = SCRIPT.format(
        show="str",
        first="",
        backward="F.cross_entropy(model(x), y).backward()",
        made="",
        prepare="",
        call=call,
    )
    text = convert_source(Source.from_text(before, PATH)).new_text
    if after is None:
        assert "def train(model, loader, optimizer)" in text
        assert call in text
        return
    assert "def train(accelerator, model, loader, optimizer):" in text
    assert after in text
    assert "def main():\n    accelerator = Accelerator(" in text
    assert "def show(text)" in text, "a function that does not need it gets no parameter"


@pytest.mark.parametrize(
    ("head", "after"),
    [
        ("model: nn.Module, loader: DataLoader, optimizer", "accelerator, model: nn.Module,"),
        (
            "model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer",
            "accelerator: Accelerator, model: nn.Module,",
        ),
    ],
)
def test_a_parameter_has_a_type_where_all_others_have_one(head: str, after: str) -> None:
    backward = "F.cross_entropy(model(x), y).backward()"
    call = "train(model, loader, optimizer)"
    before = SCRIPT.format(show="str", first="", backward=backward, made="", prepare="", call=call)
    before = before.replace("def train(model, loader, optimizer)", f"def train({head})")
    assert f"def train({after}" in convert_source(Source.from_text(before, PATH)).new_text


def test_functions_that_see_the_global_take_no_parameter() -> None:
    train = (
        "def train(model, loader):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        "        {}\n        optimizer.step()\n"
    )
    setup = train.format("F.cross_entropy(model(x), y).backward()")
    check_noop("epoch", "train(model, loader)", "ACC105", setup=setup)


def test_a_function_of_which_there_is_only_something_to_say_takes_no_parameter(tmp_path: Path) -> None:
    script = SCRIPT.format(
        show="str",
        first="",
        backward="F.cross_entropy(model(x), y).backward()",
        made="",
        prepare="",
        call="train(model, loader, optimizer)",
    )
    fetching = "def show(text):\n    text = fetched(text)\n    return str(text)\n"
    script = script.replace("import torch\n", "import torch\nfrom helpers import fetched\n", 1)
    script = script.replace("def show(text):\n    str(text)\n", fetching)
    script = script.replace("    train(model, loader", "    show('x.pt')\n    train(model, loader")
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "helpers.py").write_text(
        "import shutil\n\n\ndef fetched(path):\n    shutil.copy(path, 'data.pt')\n    return 'data.pt'\n"
    )
    (found,) = convert_paths([tmp_path / "train.py"])
    assert "ACC210" in {f.code for f in found.remaining}
    assert "def show(text):" in found.new_text
    assert "    show('x.pt')" in found.new_text
    assert "def train(accelerator, model, loader, optimizer):" in found.new_text


READER = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Text:
    def __init__(self, root):
        self.root = root
    def read(self, i):
        if i == 3:
            print("three")
        return torch.ones(4) * i

class Base:
    def __init__(self, root):
        self.root = root
    def read(self, i):
        return torch.ones(4) * i

class Spectrum(Base):
    def __init__(self, root):
        super(Spectrum, self).__init__(root)
    {more}

class Files:
    def __init__(self, source):
        self.source = source
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return self.source.read(i)

class Pairs:
    def __init__(self, a, b):
        self.a, self.b = a, b
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return self.a[i], self.b[i]

def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()

def main():
    spectrum = Spectrum("a")
    loader = DataLoader(Pairs(Files(Text("a")), Files(spectrum)), batch_size=4)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, loader, optimizer)
    {end}

if __name__ == "__main__":
    main()
"""


def _read_with(tmp_path: Path, more: str, end: str) -> str:
    (tmp_path / "train.py").write_text(READER.format(more=more, end=end))
    (found,) = convert_paths([tmp_path / "train.py"])
    assert found.status == "converted", found.reason
    return found.new_text


def test_a_class_that_writes_no_accelerator_is_handed_none(tmp_path: Path) -> None:
    """It was asked about for something that another class does, and takes no parameter for that."""
    text = _read_with(tmp_path, "pass", "pass")
    assert "def __init__(self, accelerator" not in text
    assert 'spectrum = Spectrum("a")' in text
    assert "def train(accelerator, model, loader, optimizer):" in text


def test_a_class_that_prints_for_the_main_process_keeps_one(tmp_path: Path) -> None:
    more = "def show(self):\n        print(self.root)"
    text = _read_with(tmp_path, more, "spectrum.show()")
    assert "self.accelerator.print(self.root)" in text
    assert 'spectrum = Spectrum(accelerator, "a")' in text
    assert text.count("self.accelerator = accelerator") == 1


MADE_EARLY = """\
import collections
import pathlib
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


class Row({base}):
{new}    def __init__(self, *args):
        self.weights = torch.ones(2).cuda()


def main():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=8)
    for x, y in loader:
        row = Row(x)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
NEW = "    def __new__(cls, {}):\n        return object.__new__(cls)\n\n"


@pytest.mark.parametrize(
    ("base", "new", "threaded"),
    [
        ("object", "", True),
        ("object", NEW.format("*args, **kwargs"), True),
        ("object", NEW.format("rows"), False),
        ("torch.autograd.Variable", "", False),
        ("torch.Tensor", "", False),
        ("tuple", "", False),
        ("pathlib.PosixPath", "", False),
        ("collections.namedtuple('Pair', 'a b')", "", False),
    ],
)
def test_a_class_whose_objects_are_made_before_their_init_takes_no_argument_more(
    base: str, new: str, threaded: bool
) -> None:
    found = convert_source(Source.from_text(MADE_EARLY.format(base=base, new=new), PATH))
    assert found.status == "converted", found.reason
    assert ("row = Row(accelerator, x)" in found.new_text) is threaded
    assert ("row = Row(x)" in found.new_text) is not threaded


LEARNER = '''\
import torch
from torch import nn


class Shown(nn.Module):
    pass


class Learner({base}):
    def __init__(self, lr):
        """One that steps itself."""
        {first}
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def forward(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
'''
LEARNING = """\
from torch.utils.data import DataLoader
from data import samples
from learner import Learner


def main():
    learner = Learner(0.1)
    loader = DataLoader(samples, batch_size=8, shuffle=True)
    for x, y in loader:
        print(learner(x, y))


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("base", "first", "behind"),
    [
        ("nn.Module", "super().__init__()", True),
        ("nn.Module", "super(Learner, self).__init__()", True),
        ("nn.Module", "nn.Module.__init__(self)", True),
        ("nn.Module", "super().__init__()  # first of all", True),
        ("nn.Module", "self.lr = lr\n        super().__init__()", False),
        ("Shown", "super().__init__()", False),
    ],
)
def test_a_torch_module_keeps_it_behind_the_first_line_of_its_own(
    tmp_path: Path, base: str, first: str, behind: bool
) -> None:
    (tmp_path / "learner.py").write_text(LEARNER.format(base=base, first=first))
    (tmp_path / "train.py").write_text(LEARNING)
    texts = {Path(found.source.path).stem: found.new_text for found in convert_paths([tmp_path / "train.py"])}
    kept = "        self.accelerator = accelerator\n"
    lines = f"        {first}\n{kept}" if behind else f"{kept}        {first}\n"
    assert f'        """One that steps itself."""\n{lines}' in texts["learner"]
