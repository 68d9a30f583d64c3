"""What a converted project leaves behind: each file once and whole, whatever the number of processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

HELPER = """
import csv
import json
import os

import numpy as np
import torch


def prepare(path):
    np.save(path, np.arange(12.0).reshape(4, 3))


def folder(name):
    if not os.path.exists(name):
        os.makedirs(name)
    return name


def sketch(net, path):
    with torch.no_grad():
        np.save(path, net(torch.ones(2, 3)).numpy())


class Rows:
    def __init__(self, path):
        self.file = open(path, "w")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["epoch", "loss"])

    def row(self, *values):
        self.writer.writerow(values)

    def close(self):
        self.file.close()
"""
TRAIN = """
import json
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from helper import Rows, folder, prepare, sketch


def main():
    torch.manual_seed(0)
    out = folder("out")
    prepare("data.npy")
    x = torch.tensor(np.load("data.npy")).float()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(TensorDataset(x), batch_size=2)
    rows = Rows(os.path.join(out, "rows.csv"))
    log = open(os.path.join(out, "log.txt"), "w")
    for epoch in range(3):
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
        rows.row(epoch, 1)
        log.write("epoch\\n")
        sketch(model, "sketch.npy")
    rows.close()
    log.close()
    with open("result.json", "w") as f:
        json.dump([1, 2], f)
    with open("result.json") as f:
        assert json.load(f) == [1, 2]


main()
"""


@pytest.mark.distributed
@pytest.mark.parametrize("processes", [1, 2])
def test_every_file_is_written_once(tmp_path: Path, processes: int) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    (conversion,) = convert_project(Source.read(script))
    assert conversion.status == "converted", conversion.reason
    script.write_text(conversion.new_text)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
        "train.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "rows.csv").read_text().split() == ["epoch,loss", "0,1", "1,1", "2,1"]
    assert (tmp_path / "out" / "log.txt").read_text() == "epoch\n" * 3
    assert json.loads((tmp_path / "result.json").read_text()) == [1, 2]


ASKING = """
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
time.sleep(0.5 * int(os.environ["RANK"]))  # who comes late finds the file there
path = "figures.bin"
if not os.path.exists(path):
    with open(path, "wb") as f:
        time.sleep(0.2)
        f.write(b"1234")
else:
    print("there already")
with open(path, "rb") as f:
    assert len(f.read()) == 4
save = "out"
time.sleep(0.5 * (1 - int(os.environ["RANK"])))
if not os.path.exists(save):
    os.makedirs(save)
if not os.path.isdir(save):
    raise ValueError(save)
"""


@pytest.mark.distributed
def test_processes_that_ask_at_other_times_meet_behind_the_question(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ASKING)
    (conversion,) = convert_project(Source.read(script))
    assert conversion.status == "converted", conversion.reason
    script.write_text(conversion.new_text)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
