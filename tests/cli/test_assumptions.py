"""`accelify convert --assumptions`: what is proved of the converted script, and what the proofs rest on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from helper import report

data = torch.randn(64, 4)
loader = DataLoader(TensorDataset(data), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
report(len(data))
"""
HELPER = """\
import mylogger


def report(size):
    with open("size.txt", "w") as file:
        file.write(str(size))
    mylogger.send(size)
"""


def _project(folder: Path) -> Path:
    (folder / "helper.py").write_text(HELPER)
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return script


def _proof(run: Run, script: Path) -> dict[str, object]:
    outcome = run("convert", "--assumptions", "--json", "--diff", script)
    files = json.loads(outcome.out)["files"]
    proof: dict[str, object] = next(file["proof"] for file in files if file["file"] == str(script))
    return proof


def test_what_is_proved_and_what_is_not(run: Run, tmp_path: Path) -> None:
    script = _project(tmp_path)
    outcome = run("convert", "--assumptions", "--diff", script)
    assert f"{script}: " in outcome.err
    assert " proved" in outcome.err
    proof = _proof(run, script)
    assert isinstance(proof["proved"], int)
    assert proof["proved"] > 5
    assert proof["not_read"] == []
    assumed = [assumption["text"] for assumption in proof["assumptions"]]  # type: ignore[attr-defined]
    assert any("mylogger.send" in text for text in assumed)


def test_a_row_of_the_users_shortens_the_list(run: Run, tmp_path: Path) -> None:
    plain, taught = tmp_path / "plain", tmp_path / "taught"
    plain.mkdir()
    taught.mkdir()
    before = _proof(run, _project(plain))
    (taught / "pyproject.toml").write_text(
        '[tool.accelify.models]\n"mylogger.send" = "none effect=log.write content=*"\n'
    )
    proof = _proof(run, _project(taught))
    assert not any("mylogger" in assumption["text"] for assumption in proof["assumptions"])  # type: ignore[attr-defined]
    # That it is logged once, and what.
    assert proof["proved"] == before["proved"] + 2  # type: ignore[operator]


def test_a_row_that_makes_no_sense_is_one_sentence(run: Run, tmp_path: Path) -> None:
    script = _project(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.accelify.models]\n"mylogger.send" = "nonsense"\n')
    outcome = run("convert", "--assumptions", script)
    assert outcome.code == 2
    assert "mylogger.send" in outcome.err
    assert "Traceback" not in outcome.err
    assert script.read_text() == SCRIPT


def test_without_the_option_nothing_is_said(run: Run, tmp_path: Path) -> None:
    outcome = run("convert", _project(tmp_path))
    assert " proved" not in outcome.out


def test_standard_input(run: Run) -> None:
    text = SCRIPT.replace("from helper import report\n", "report = print\n")
    outcome = run("convert", "--assumptions", "-", stdin=text.encode())
    assert "-: " in outcome.err
    assert " proved" in outcome.err
