"""Whatever is not proved of a converted script is said: in a finding of the engine or of a transform, or in a note."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_paths
from accelify.obligations import Status, Validation
from accelify.proving import prove
from accelify.proving.origins import Places

FIXTURES = Path(__file__).parents[2] / "fixtures"
HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from helper import read, show

rows = read("data")
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(5, 4), torch.randn(5, 1)), batch_size=1)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
least, best = None, 0
for epoch in range(2):
    for i, data in enumerate(loader):
        loss = ((model(data[0]) - data[1]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        least = loss if least is None or loss < least else least
        print(loss.item())
        if i % 4 == 0:
            scores = []
            for data in valid:
                with torch.no_grad():
                    scores.append(((model(data[0]) - data[1]) ** 2).mean())
            scores = torch.tensor(scores)
            if scores.mean() > best:
                best = scores.mean()
                torch.save({"best": best, "model": model.state_dict()}, "best.pt")
    torch.manual_seed(show(rows))
print("least", least)
scores = []
for data in valid:
    with torch.no_grad():
        scores.append(((model(data[0]) - data[1]) ** 2).mean())
print(torch.tensor(scores).mean())
"""
HELPER = """\
import os
import subprocess
import numpy as np
from tqdm import tqdm
import matplotlib.pyplot as plt


def read(folder):
    rows = []
    for name in tqdm(sorted(os.listdir(folder))):
        rows.append(np.load(name))
        np.save(name + ".copy", rows[-1])
    print("read", len(rows))
    subprocess.run(["ls", folder])
    return rows


def show(rows, path=None):
    plt.plot(rows)
    if path is not None:
        plt.savefig(path)
    return len(rows)
"""


def _project(folder: Path) -> Path:
    (folder / "helper.py").write_text(HELPER)
    (folder / "train.py").write_text(HEAD)
    return folder / "train.py"


def _proved(script: Path) -> tuple[list[Conversion], Validation]:
    conversions = convert_paths([script], ConvertOptions())
    entry = next(one for one in conversions if one.source.path == script)
    return conversions, prove(conversions, entry)


def _unsaid(script: Path) -> list[str]:
    """The demands that are not proved, and of which neither a finding nor a note speaks."""
    conversions, found = _proved(script)
    entry = next(one for one in conversions if one.source.path == script)
    places = Places(entry, {one.place: one for one in conversions})
    said: set[tuple[str, int]] = set()
    for finding in (finding for one in conversions for finding in one.remaining):
        name = Path(finding.path).name
        said |= {(name, line) for line in range(finding.line, max(finding.end_line, finding.line) + 1)}
        here = name
        for file, lines in re.findall(
            r"(?:([\w-]+\.py)(?::|, ))?(?:lines? )?(\d+(?:, \d+)*)", finding.message
        ):
            here = file or name
            said |= {(here, int(line)) for line in lines.split(", ")}
    notes = " ".join(entry.notes)
    shown = {
        line
        for part in re.findall(r"shown [^(]*\(lines? (\d+(?:, \d+)*)", notes)
        for line in part.split(", ")
    }
    unsaid = []
    for one in found.of(Status.NAMED):
        path, _, origins = places.file(one.path)
        if (Path(path).name, origins.of(one.line)[0]) not in said:
            unsaid.append(f"{one.path}:{one.line} {one.sink} {one.message}")
    for one in found.of(Status.LOOP):
        if " more" not in notes and str(places.file(one.path)[2].of(one.line)[0]) not in shown:
            unsaid.append(f"{one.path}:{one.line} {one.sink} {one.message}")
    return unsaid


@pytest.mark.parametrize("script", sorted(FIXTURES.glob("*/before.py")), ids=lambda one: one.parent.name)
def test_of_every_fixture(script: Path) -> None:
    assert _unsaid(script) == []


def test_of_a_script_with_findings_of_transforms_at_its_calls(tmp_path: Path) -> None:
    script = _project(tmp_path)
    assert _unsaid(script) == []


def test_one_call_with_several_effects(tmp_path: Path) -> None:
    conversions, _ = _proved(_project(tmp_path))
    found = {
        (finding.code, finding.line)
        for one in conversions
        for finding in one.remaining
        if Path(finding.path).name == "helper.py"
    }
    # The call that writes files is a finding of its own; the bar and the started program are others.
    assert {("ACC702", 10), ("ACC702", 14)} <= found


def test_a_finding_about_another_value_of_the_same_loop(tmp_path: Path) -> None:
    conversions, _ = _proved(_project(tmp_path))
    entry = next(one for one in conversions if one.source.path == tmp_path / "train.py")
    codes = {(finding.code, finding.line) for finding in entry.remaining}
    assert ("ACC701", 29) in codes
    # Of what every process evaluates whole, nothing covers a share only.
    assert "ACC304" not in {code for code, _ in codes}


def test_what_no_call_comes_to_is_no_finding(tmp_path: Path) -> None:
    def found(conversions: list[Conversion]) -> list[str]:
        remaining = [finding for one in conversions for finding in one.remaining]
        return [finding.code for finding in remaining if "savefig" in finding.message]

    script = _project(tmp_path)
    assert found(_proved(script)[0]) == []
    script.write_text(HEAD.replace("show(rows)", "show(rows, 'curve.png')"))
    assert found(_proved(script)[0]) == ["ACC210"]


EVALUATED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from tools import accuracy, shown

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(2, (64,))), batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    high = 0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        high = max(high, loss.item())
    value = accuracy(model, loader)
    print("accuracy", value)
    print("high", shown(high))
"""
TOOLS = """\
import torch


def accuracy(model, loader):
    right, n = 0, 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            n += y.size(0)
    return right / n


def shown(value):
    return round(value * 2, 3)
"""


def test_a_figure_of_a_function_that_is_named_where_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "train.py").write_text(EVALUATED)
    (conversion, *_), _ = _proved(tmp_path / "train.py")
    found = {(one.code, one.line) for one in conversion.remaining}
    assert found == {("ACC701", 17), ("ACC701", 18)}
