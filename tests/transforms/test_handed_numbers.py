"""GPUs that other modules are handed by their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import frame

PARTS = """\
import torch
from torch import nn


class Spread(nn.Module):
    def __init__(self, ids):
        super().__init__()
        self.ids = ids
        self.weight = nn.Parameter(torch.randn(2, 4))

    def forward(self, x):
        parts = torch.chunk(self.weight, len(self.ids))
        outs = [(x.cuda(i) @ w.cuda(i).t()).cuda(self.ids[0]) for i, w in zip(self.ids, parts)]
        return torch.cat(outs, 1)


class Masked(nn.Module):
    def __init__(self, gpu, width=4):
        super().__init__()
        self.gpu = gpu
        self.width = width
        self.layer = nn.Linear(width, 2)

    def forward(self, x):
        return self.layer(x * torch.ones(self.width).cuda(self.gpu))


class Plain(nn.Module):
    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x.cuda())


def noise(x, gpu):
    return torch.randn(x.shape).cuda(gpu)
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
ASKED = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--gpu', type=int)\nargs = p.parse_args()"
)


def said(folder: Path, setup: str, made: str, loss: str = "") -> list[str]:
    (folder / "parts.py").write_text(PARTS)
    script = folder / "train.py"
    snippets = {"loss": loss} if loss else {}
    script.write_text(
        frame(imports="import parts", setup=setup, build=f"model = {made}.cuda()\n{SGD}", **snippets)
    )
    found = convert_project(Source.read(script))[0]
    assert found.status == "converted", found.reason
    messages = [f.message for f in found.remaining if f.code == "ACC118"]
    assert found.new_text.count("TODO(accelify ACC714): give") == len(messages)
    return messages


@pytest.mark.parametrize(
    ("setup", "made", "message"),
    [
        (
            "GPUS = [0, 1]",
            "parts.Spread(GPUS)",
            "`Spread` puts tensors on the GPU that `GPUS` names by its number (parts.py, line 13), the same one for "
            "every process: give it [accelerator.device]",
        ),
        (
            "",
            "parts.Spread(ids=[0, 1])",
            "`Spread` puts tensors on the GPU that `[0, 1]` names by its number (parts.py, line 13), the same one for "
            "every process: give it [accelerator.device]",
        ),
        (
            ASKED,
            "parts.Masked(args.gpu)",
            "`Masked` puts tensors on the GPU that `args.gpu` names by its number (parts.py, line 25), the same one "
            "for every process: give it accelerator.device",
        ),
        (
            "",
            "parts.Masked(0)",
            "`Masked` puts tensors on the GPU that `0` names by its number (parts.py, line 25), the same one for every "
            "process: give it accelerator.device",
        ),
    ],
)
def test_a_class_that_goes_by_the_number_is_named(
    tmp_path: Path, setup: str, made: str, message: str
) -> None:
    assert said(tmp_path, setup, made) == [message]


def test_so_is_a_function(tmp_path: Path) -> None:
    loss = "x = x.cuda()\nloss = F.cross_entropy(model(x + parts.noise(x, 0)), y.cuda())"
    found = said(tmp_path, "", "nn.Linear(4, 2)", loss)
    assert [m.partition(" that")[0] for m in found] == ["`noise` puts tensors on the GPU"]


@pytest.mark.parametrize("made", ["parts.Plain(0)", "parts.Masked(None)", "parts.Masked(None, 4)"])
def test_what_goes_by_no_number_stays(tmp_path: Path, made: str) -> None:
    assert said(tmp_path, "", made) == []


def test_a_device_is_the_accelerators(tmp_path: Path) -> None:
    setup = "device = torch.device('cuda:0')"
    assert said(tmp_path, setup, "parts.Masked(device)") == []
