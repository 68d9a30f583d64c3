"""What a function of another module runs a model on, once no DataParallel moves it to the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths

HELPERS = """\
import torch
from torch.autograd import Variable


def measure(model, size):
    example = {made}
    {moved}
    return model.forward(example)


def embed(model, x):
    model.eval()
    {moves}
    return {run}.data.cpu()


def extract(model, loader):
    features = {{}}
    for x, names in {through}:
        for name, one in zip(names, embed(model, x)):
            features[int(name)] = one
    return features
"""
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from helpers import {name}

data = TensorDataset(torch.randn(32, 4), torch.arange(32))
loader, test = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print({shown})
"""
WRAPPED = "nn.DataParallel(nn.Linear(4, 32)).cuda()"


def converted(
    folder: Path,
    moves: str = "pass",
    run: str = "model(x)",
    through: str = "loader",
    model: str = WRAPPED,
    name: str = "extract",
    shown: str = "len(extract(model, test))",
    made: str = "torch.zeros(1, size)",
    moved: str = "pass",
) -> Conversion:
    (folder / "helpers.py").write_text(
        HELPERS.format(moves=moves, run=run, through=through, made=made, moved=moved)
    )
    (folder / "train.py").write_text(TRAIN.format(model=model, name=name, shown=shown))
    conversion = convert_paths([folder / "train.py"])[0]
    assert conversion.status == "converted", conversion.reason
    return conversion


def said(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC109"]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"moves": "x = x.float().contiguous()", "through": "enumerate(loader)"},
        {"run": "model.forward(x)"},
        {"name": "embed", "shown": "embed(model, torch.zeros(1, 4))"},
    ],
)
def test_what_lies_on_the_host_is_said(tmp_path: Path, changed: dict[str, str]) -> None:
    if "through" in changed:
        changed["moves"] += "\n    x = x[1]"
    conversion = converted(tmp_path, **changed)
    (message,) = said(conversion)
    assert "(helpers.py, line " in message
    assert "# TODO(accelify ACC712): move what the model is given in helpers.py" in conversion.new_text


@pytest.mark.parametrize(
    "changed",
    [
        {"moves": "x = x.cuda()"},
        {"run": "model(x.to(next(model.parameters()).device))"},
        {"through": "((x.cuda(), y) for x, y in loader)"},
        {"model": "nn.Linear(4, 32).cuda()"},
        {"shown": "len(extract(model, loader))"},
        {"name": "embed", "shown": "embed(model, torch.zeros(1, 4).cuda())"},
        {"shown": "len(test)"},
        {
            "name": "embed",
            "shown": "len(test))\nfor rows, _ in test:\n    if len(data) > 3:\n        rows = rows.cuda()\n"
            "    print(embed(model, rows)",
        },
    ],
)
def test_what_is_moved_or_never_was_is_not(tmp_path: Path, changed: dict[str, str]) -> None:
    assert said(converted(tmp_path, **changed)) == []


MEASURES = {"name": "measure", "shown": "measure(model, 4)"}


@pytest.mark.parametrize("made", ["torch.zeros(1, size)", "Variable(torch.FloatTensor(1, size)).float()"])
def test_what_a_helper_makes_itself_is_said(tmp_path: Path, made: str) -> None:
    conversion = converted(tmp_path, made=made, **MEASURES)
    (message,) = said(conversion)
    assert "`measure` gives the model tensors of the host (helpers.py, line " in message
    assert "next(model.parameters()).device" in message


@pytest.mark.parametrize(
    "changed",
    [
        {"made": "torch.zeros(1, size, device=next(model.parameters()).device)"},
        {"made": "torch.zeros(1, size).cuda()"},
        {"moved": "example = example.to(next(model.parameters()).device)"},
        {"moved": "model = model.cpu()"},
        {"moved": "model.to('cpu')"},
        {"shown": "measure(nn.Linear(4, 32), 4)"},
        {"shown": "len(test))\nplain = nn.Linear(4, 32)\nprint(measure(plain, 4)"},
    ],
)
def test_what_a_helper_makes_for_another_model_or_moves_is_not(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    assert said(converted(tmp_path, **(MEASURES | changed))) == []


def test_every_place_of_a_function_is_named(tmp_path: Path) -> None:
    """Moving what the first one gives leaves the others, which would fail on a GPU just so."""
    helper = (
        "def extract(model, loader):\n    found = []\n    for x, y in loader:\n        found.append(model(x))\n"
        "    for x, y in loader:\n        y = y.cuda()\n        found.append(model(x))\n    return found\n"
    )
    (tmp_path / "helpers.py").write_text(helper)
    script = TRAIN.format(model=WRAPPED, name="extract", shown="len(extract(model, test))")
    (tmp_path / "train.py").write_text(script)
    conversion = convert_paths([tmp_path / "train.py"])[0]
    (message,) = [f.message for f in conversion.remaining if f.code == "ACC109"]
    assert "(helpers.py, lines 4 and 7)" in message
