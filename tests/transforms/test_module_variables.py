"""ACC211: names of the module, made from the clock before the function that makes the Accelerator is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import codes

TRAIN = """
import os
import time
import torch
from torch import nn
import tools

run_name = "run" + time.strftime("-%H_%M_%S")
def where():
    return os.path.join("runs", run_name)
def main():
    {begin}
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).mean().backward()
        optimizer.step()
    {end}
{last}
"""
LOGS = """
import logging
import os
def make_log(folder, name):
    log = logging.getLogger("run")
    log.addHandler(logging.FileHandler(os.path.join(folder, name + ".log")))
    return log
"""
SAVES = """
import os
import torch
def save(folder, name, model):
    torch.save(model, os.path.join(folder, name + ".pt"))
"""
LOG = 'log = tools.make_log(".", run_name)'
READ = 'model.load_state_dict(torch.load(os.path.join(where(), "net.pt")))'
AGREED = "\n    global run_name\n    run_name = broadcast_object_list([run_name])[0]\n"


def _converted(tmp_path: Path, tools: str, begin: str, end: str = "pass", last: str = "main()") -> Conversion:
    (tmp_path / "tools.py").write_text(tools)
    text = TRAIN.format(begin=begin, end=end, last=last)
    return convert_source(Source.from_text(text, tmp_path / "train.py"))


@pytest.mark.parametrize(("begin", "end"), [(LOG, "print(where())"), ("pass", READ), (LOG, READ)])
def test_the_function_sets_the_name_anew(tmp_path: Path, begin: str, end: str) -> None:
    found = _converted(tmp_path, LOGS, begin, end)
    assert AGREED in found.new_text
    assert found.new_text.count("broadcast_object_list([") == 1
    compile(found.new_text, "train.py", "exec")
    again = convert_source(Source.from_text(found.new_text, tmp_path / "train.py"))
    assert again.new_text == found.new_text


@pytest.mark.parametrize(
    ("begin", "last"),
    [
        (LOG, "print(where())\nmain()"),
        (LOG, "print(run_name)\nmain()"),
        (LOG, "if time:\n    run_name = 'run'\nmain()"),
        (LOG, "if where():\n    main()"),
    ],
)
def test_a_name_that_is_read_before_is_said(tmp_path: Path, begin: str, last: str) -> None:
    found = _converted(tmp_path, LOGS, begin, last=last)
    assert "broadcast_object_list" not in found.new_text
    assert "ACC211" in {f.code for f in found.remaining}


def test_a_file_that_the_main_process_alone_writes(tmp_path: Path) -> None:
    found = _converted(tmp_path, SAVES, "pass", 'tools.save(".", run_name, model)')
    assert "ACC211" not in codes(found)


def test_a_name_that_is_only_printed(tmp_path: Path) -> None:
    assert "ACC211" not in codes(_converted(tmp_path, LOGS, "print(run_name)"))
