"""ACC210: folders of the first name that is free, which a function of another module looks for and makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source

TOOLS = """
import os
import random
import subprocess
def begin(args):
    path = place(args)
    with open(os.path.join(path, "options.txt"), "w") as file:
        file.write(random.choice("ab"))
def place(args):
    {look}
    {make}
    return args.path
"""
TRAIN = """
import argparse
import torch
from torch import nn
from tools import begin
args = argparse.Namespace(root="runs", path="runs/a")
begin(args)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
torch.save(model.state_dict(), "net.pt")
"""
DRAWN = "args.path = os.path.join(args.root, random.choice('abc'))"
BREAKS = f"while True:\n        {DRAWN}\n        if not os.path.isdir(args.path):\n            break"
ASKS = f"while os.path.exists(args.path):\n        {DRAWN}"
SHELL = 'subprocess.Popen("mkdir -p %s" % args.path, shell=True).wait()'


def _is_said(tmp_path: Path, look: str, make: str) -> bool:
    (tmp_path / "tools.py").write_text(TOOLS.format(look=look, make=make))
    found = convert_source(Source.from_text(TRAIN, tmp_path / "train.py"))
    said = [f.message for f in found.remaining if f.code == "ACC210"]
    assert len(said) == 1
    return (
        "looks for a folder that is not there yet (tools.py, line 10), and each process can come to"
        in said[0]
    )


@pytest.mark.parametrize("look", [BREAKS, ASKS])
@pytest.mark.parametrize("make", [SHELL, "os.makedirs(args.path)", "os.mkdir(args.path)"])
def test_each_process_can_come_to_a_folder_of_its_own(tmp_path: Path, look: str, make: str) -> None:
    assert _is_said(tmp_path, look, make)


@pytest.mark.parametrize(
    "make", ["os.makedirs(args.path + str(args.n))", "os.mkdir(args.path + str(args.n))"]
)
@pytest.mark.parametrize("counted", ["args.n += 1", "args.n = args.n + 1"])
def test_each_process_can_come_to_a_number_of_its_own(tmp_path: Path, make: str, counted: str) -> None:
    look = f"while os.path.exists(args.path + str(args.n)):\n        {counted}"
    assert _is_said(tmp_path, look, make)
    assert not _is_said(tmp_path, look.replace("str(args.n)", "'x'"), make)


@pytest.mark.parametrize(
    ("look", "make"),
    [
        (DRAWN, SHELL),
        (f"for _ in range(2):\n        {DRAWN}", "os.makedirs(args.path)"),
        (BREAKS, "os.makedirs(args.root)"),
        (BREAKS, 'subprocess.Popen("ls %s" % args.path, shell=True).wait()'),
        ("while not os.path.exists(args.root):\n        pass", "os.makedirs(args.path)"),
    ],
)
def test_a_folder_of_one_name_is_not(tmp_path: Path, look: str, make: str) -> None:
    assert not _is_said(tmp_path, look, make)


FINDS = """
import os
def place(root, most=100):
    for number in range(most):
        path = os.path.join(root, str(number))
        {look}
    raise RuntimeError("too many")
"""
FOUND = "args.path = place(args.root)"
FIRST = "if not os.path.exists(path):\n            os.makedirs(path)\n            return path"


@pytest.mark.parametrize(
    ("look", "use", "told"),
    [
        (FIRST, FOUND, True),
        (FIRST, "folders = [place(args.root)]", False),
        # One folder for all, where each finds what the first has made.
        ("os.makedirs(path, exist_ok=True)\n        return path", FOUND, False),
    ],
)
def test_the_main_process_tells_the_others_which_folder_it_has_made(
    tmp_path: Path, look: str, use: str, told: bool
) -> None:
    (tmp_path / "tools.py").write_text(FINDS.format(look=look))
    script = TRAIN.replace("from tools import begin", "from tools import place").replace("begin(args)", use)
    found = convert_source(Source.from_text(script, tmp_path / "train.py"))
    call = "broadcast_object_list([place(args.root) if accelerator.is_main_process else None])[0]"
    assert (call in found.new_text) is told
    assert "main_process_first" not in found.new_text or look != FIRST
