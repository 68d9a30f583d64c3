"""ACC210: folders of the first name that is free, which a function of another module looks for and makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source

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
FINDS = """
import os
def place(root, most=100):
    for number in range(most):
        path = os.path.join(root, str(number))
        {look}
    raise RuntimeError("too many")
"""
FIRST = "if not os.path.exists(path):\n            os.makedirs(path)\n            return path"


@pytest.mark.parametrize("use", ["args.path = place(args.root)", "folders = [place(args.root)]"])
def test_who_comes_later_would_take_another_name(tmp_path: Path, use: str) -> None:
    (tmp_path / "tools.py").write_text(FINDS.format(look=FIRST))
    script = TRAIN.replace("from tools import begin", "from tools import place").replace("begin(args)", use)
    found = convert_source(Source.from_text(script, tmp_path / "train.py"))
    assert "main_process_first" not in found.new_text
    assert any("makes folders" in f.message for f in found.remaining if f.code == "ACC210")
