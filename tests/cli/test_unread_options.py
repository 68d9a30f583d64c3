"""Options and constants that decide nothing once a script is converted, as `accelify convert` says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

OPTIONS = """\
import argparse


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--several", action="store_true")
    parser.add_argument("--unused", action="store_true")
    parser.add_argument("--rate", type=float, default=0.1)
    return parser.parse_args()
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

{options}
IDS = [0, 1]
RATE = 0.1
args = parsed()
number = args.gpu
torch.cuda.set_device(number)
device = torch.device("cuda")
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
model = torch.nn.Linear(8, 3).to(device)
if args.several:
    model = torch.nn.DataParallel(model, device_ids=IDS)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE * args.rate)
scaler = torch.cuda.amp.GradScaler(enabled=args.scale)
for x, y in loader:
    with torch.cuda.amp.autocast(enabled=args.amp):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
{end}
"""


def _said(run: Run, folder: Path, *, beside: bool = False, end: str = "") -> dict[str, str]:
    """What each option that decides nothing has in its place."""
    (folder / "options.py").write_text(OPTIONS)
    options = "from options import parsed" if beside else OPTIONS
    (folder / "train.py").write_text(SCRIPT.format(options=options, end=end))
    said = re.findall(
        r"^  (`.*) decides? nothing any more: (.*)$", run("convert", folder / "train.py").out, re.M
    )
    return {name: why for names, why in said for name in re.findall(r"`([^`]*)`", names)}


@pytest.mark.parametrize("beside", [False, True], ids=["one file", "options in a module"])
def test_what_decides_in_their_place_is_said(run: Run, tmp_path: Path, beside: bool) -> None:
    said = _said(run, tmp_path, beside=beside)
    assert set(said) == {"--gpu", "--scale", "--several", "IDS"}
    assert "the launch chooses the devices" in said["--gpu"]
    assert "`mixed_precision` of the Accelerator" in said["--scale"]
    assert "the launch starts the processes" in said["--several"]
    assert said["IDS"] == said["--several"]


@pytest.mark.parametrize(
    "end",
    [
        "print('on', args.gpu)",
        "name = getattr(args, 'gpu')\nprint(name)",
        "print(f'{number}')",
        "def show(gpu, **rest):\n    print(gpu)\nshow(**vars(args))",
    ],
)
def test_what_is_read_anywhere_else_is_not_named(run: Run, tmp_path: Path, end: str) -> None:
    assert set(_said(run, tmp_path, end=end)) == {"--scale", "--several", "IDS"}
