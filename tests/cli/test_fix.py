"""`accelify check --fix`: each fix makes its finding go, and the script runs as it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLAIN, Run

HEAD = """\
import json
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.zeros(64, 4), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
LOOP = """\
for epoch in range(2):
    for x in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
"""
SEVERAL = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.zeros(64, 4)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
for epoch in range(2):
    for x in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
"""
CASES = {
    "print": (HEAD + LOOP + '    print("epoch", epoch)\n', 'accelerator.print("epoch", epoch)'),
    "file": (
        HEAD + LOOP + 'with open("done.json", "w") as file:\n    json.dump([1], file)\n',
        'if accelerator.is_main_process:\n    with open("done.json", "w") as file:\n        json.dump',
    ),
    "backward": (
        HEAD + LOOP.replace("accelerator.backward(loss)", "loss.backward()"),
        "accelerator.backward(loss)",
    ),
    "retained": (
        HEAD + LOOP.replace("accelerator.backward(loss)", "loss.backward(retain_graph=True)"),
        "accelerator.backward(loss, retain_graph=True)",
    ),
    "clip": (
        HEAD
        + LOOP.replace(
            "        optimizer.step()",
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()",
        ),
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "unused": (
        HEAD + LOOP.replace("(loss)", "(loss)  # accelify: ignore[ACC704]"),
        "accelerator.backward(loss)\n",
    ),
}


# As a launcher sets it.
OF_ONE_PROCESS = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}


def runs(script: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CASES)
def test_a_fix_makes_the_finding_go(run: Run, tmp_path: Path, name: str) -> None:
    script = tmp_path / "train.py"
    text, expected = CASES[name]
    script.write_text(text)
    (found,) = json.loads(run("check", "--output-format", "json", script).out)
    assert found["fix"] == "safe"
    assert "[*]" in run("check", script).out
    shown = run("check", "--diff", script)
    assert shown.code == 1
    assert shown.out.startswith("--- ")
    assert script.read_text() == text
    outcome = run("check", "--fix", script)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "1 finding fixed.\n")
    assert expected in script.read_text()
    assert run("check", script).out == ""
    assert run("check", "--diff", script).code == 0
    runs(script)


def test_torch_distributed(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEVERAL)
    assert run("check", script).code == 1
    assert run("check", "--fix", script).code == 0
    text = script.read_text()
    assert "    sampler.set_epoch(epoch)\n    for x in loader:" in text
    assert "    if dist.get_rank() == 0:\n        print(" in text
    runs(script, **OF_ONE_PROCESS)
    assert (tmp_path / "model.pt").exists()


def test_what_may_change_the_run_is_asked_for(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = SEVERAL.replace("sampler =", 'start = torch.load("start.pt")\nsampler =')
    script.write_text(text)
    run("check", "--fix", script)
    assert 'torch.load("start.pt")' in script.read_text()
    run("check", "--fix", "--unsafe-fixes", script)
    assert 'torch.load("start.pt", map_location="cpu")' in script.read_text()


def test_one_rule_alone(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEVERAL)
    run("check", "--fix", "--select", "ACC716", script)
    assert script.read_text() == SEVERAL.replace("    for x", "    sampler.set_epoch(epoch)\n    for x")


@pytest.mark.parametrize("state", ["accelerator.get_state_dict(model)", "model.state_dict()", "{'step': 3}"])
def test_what_is_saved_is_asked_of_all_processes(run: Run, tmp_path: Path, state: str) -> None:
    """Under a condition of the main process the others would wait for ever."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP + f'torch.save({state}, "model.pt")\n')
    assert run("check", script).code == 1
    run("check", "--fix", script)
    assert script.read_text() == HEAD + LOOP + f'accelerator.save({state}, "model.pt")\n'


def test_what_processes_do_together_stays(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = HEAD + LOOP + 'open("a.txt", "w").write(str(accelerator.reduce(x)))\n'
    script.write_text(text)
    run("check", "--fix", script)
    assert script.read_text() == text


@pytest.mark.parametrize("form", ["text", "concise"])
def test_quiet_leaves_the_count_out(run: Run, tmp_path: Path, form: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP + "print(1)\n")
    count = "1 finding, 1 of them marked [*]"
    assert count in run("check", "--output-format", form, script).out
    quiet = run("check", "--quiet", "--output-format", form, script).out
    assert "ACC702" in quiet
    assert count not in quiet


def test_a_plain_script_is_a_case_for_convert(run: Run, plain: Path) -> None:
    outcome = run("check", "--fix", plain)
    assert outcome.code == 1
    assert "accelify convert" in outcome.out
    assert plain.read_text() == PLAIN


def test_a_notebook(run: Run, tmp_path: Path) -> None:
    book = tmp_path / "train.ipynb"
    code = HEAD + LOOP + '    print("epoch", epoch)\n'
    cell = {"cell_type": "code", "source": code.splitlines(keepends=True), "metadata": {}, "outputs": []}
    book.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    assert run("check", book).code == 1
    assert run("check", "--fix", book).code == 0
    assert "accelerator.print" in "".join(json.loads(book.read_text())["cells"][0]["source"])


def test_what_others_read_afterwards_is_set_by_all(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = (
        HEAD
        + LOOP
        + 'with open("a.json", "w") as file:\n    number = 3\n    json.dump([1], file)\nmodel(number)\n'
    )
    script.write_text(text)
    assert run("check", "--fix", script).code == 1
    assert script.read_text() == text


def test_a_fix_that_would_bring_another_finding_is_tried_once_and_has_no_mark_then(
    run: Run, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    saved = 'torch.save(model.module.state_dict(), "m.pt")\nstate = torch.load("m.pt", map_location="cpu")\n'
    script.write_text(HEAD + LOOP + saved)
    assert "[*]" in run("check", script).out
    tried = run("check", "--fix", script)
    assert "ACC702" in tried.out
    assert "[*]" not in tried.out
    shown = run("check", "--diff", script)
    assert (shown.code, shown.out) == (0, "")
    assert shown.err == "Nothing would be changed: no finding has a fix that leaves none in its place.\n"


def test_all_comments_that_silence_nothing_go_at_once(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP + "".join(f"number = {n}  # accelify: ignore[ACC704]\n" for n in range(15)))
    assert run("check", "--fix", script).err == "15 findings fixed.\n"
    assert script.read_text() == HEAD + LOOP + "".join(f"number = {n}\n" for n in range(15))


BEFORE = "print('begins')\ndist.init_process_group"


def test_a_message_before_the_processes_meet_is_no_safe_fix(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEVERAL.replace("dist.init_process_group", BEFORE, 1))
    run("check", "--fix", script)
    assert script.read_text().count("\nprint('begins')\n") == 1


@pytest.mark.parametrize(
    "effect",
    [
        "urllib.request.urlretrieve('https://example.org/a', 'a')",
        "os.mkdir('out')",
        "name = input()",
        "model.save_pretrained('out')",
    ],
)
def test_what_the_others_wait_for_is_no_safe_fix(run: Run, tmp_path: Path, effect: str) -> None:
    script = tmp_path / "train.py"
    text = f"import os\nimport urllib.request\n{HEAD}{LOOP}{effect}\n"
    script.write_text(text)
    assert run("check", script).code == 1
    run("check", "--fix", script)
    assert script.read_text() == text
