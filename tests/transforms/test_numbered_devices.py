"""GPUs that are named by a number where something is put on them: the same one for every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_paths, convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import PATH, named

SCRIPT = """\
import argparse

import torch
from torch import nn
from torchtext import data
from helper import Corpus
from sounds import Recorder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, DEFAULT)
    parser.add_argument("--gpu-name", default="cuda")
    args = parser.parse_args()
    model = nn.Linear(4, 2).cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    LINE
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
HELPER = """\
import torch
from torchtext import data


class Corpus:
    def __init__(self, args):
        self.args = args
        self.batches = PLACE
"""


def written(line: str, default: str = "default=0") -> str:
    return SCRIPT.replace("LINE", line).replace("DEFAULT", default)


def converted(text: str) -> str:
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    return found.new_text


@pytest.mark.parametrize(
    "line",
    [
        "batches = data.BucketIterator(rows, device=GPU)",
        "batches = torch.ones(8, 2, 4, device=GPU)",
        "batches = torch.ones(8, 2, 4).to(GPU)",
        "batches = torch.ones(8, 2, 4).to(GPU, torch.float64)",
    ],
)
@pytest.mark.parametrize("gpu", ["0", "1", "args.gpu"])
def test_each_process_takes_its_own(line: str, gpu: str) -> None:
    text = converted(written(line.replace("GPU", gpu)))
    assert line.replace("GPU", "accelerator.device") in text


@pytest.mark.parametrize(
    ("line", "default"),
    [
        ("batches = data.BucketIterator(rows, device=-1)", "default=0"),  # the host, of old
        ("batches = Recorder(device=0)", "default=0"),  # a microphone
        ("batches = torch.ones(8, 2, 4).to(args.gpu)", "default=None"),  # the current one
        ("args.gpu = chosen(); batches = torch.ones(8, 2, 4).to(args.gpu)", "default=0"),
    ],
    ids=["host", "another library", "open", "set"],
)
def test_what_names_no_gpu_stays(line: str, default: str) -> None:
    assert line.rpartition("; ")[2] in converted(written(line, default))


def project(folder: Path, place: str, default: str = "default=0") -> Conversion:
    (folder / "helper.py").write_text(HELPER.replace("PLACE", place))
    (folder / "main.py").write_text(written("batches = Corpus(args).batches", default))
    found = {one.source.path.name: one for one in convert_paths([folder / "main.py"]) if one.source.path}
    assert found["main.py"].status == "converted", found["main.py"].reason
    return found["main.py"]


def _named(found: Conversion) -> list[str]:
    prove([found], found)
    return [one.message for one in found.remaining if one.code == "ACC714"]


@pytest.mark.parametrize(
    "place",
    [
        "data.BucketIterator([], device=args.gpu)",
        "data.BucketIterator([], device=self.args.gpu)",
        "torch.ones(8, 2, 4).cuda(args.gpu)",
    ],
)
def test_of_another_module_it_is_said(tmp_path: Path, place: str) -> None:
    found = project(tmp_path, place)
    (said,) = _named(found)
    assert f"`{place}` names one device for every process (called at main.py:17)" in said


@pytest.mark.parametrize(
    ("place", "default"),
    [
        ("torch.ones(8, 2, 4).cuda(args.gpu)", "default=None"),
        ("torch.ones(8, 2, 4).cuda()", "default=0"),
        ("torch.ones(8, 2, 4).to(args.gpu_name)", "default=0"),
        ("data.BucketIterator([], device=-1)", "default=0"),
    ],
)
def test_of_another_module_the_rest_is_right(tmp_path: Path, place: str, default: str) -> None:
    assert not _named(project(tmp_path, place, default))


AHEAD = """\
import argparse

import torch
from torch import nn


def train(args, batches):
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    batches = MADE
    train(args, batches)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("made", "is_said"),
    [
        ("torch.ones(8, 2, 4, device=args.gpu)", True),
        ("torch.ones(8, 2, 4).to(0)", True),
        ('torch.ones(8, 2, 4, device="cuda:0")', True),
        ("torch.ones(8, 2, 4)", False),
    ],
)
def test_ahead_of_the_accelerator_it_is_said(made: str, is_said: bool) -> None:
    """`main` makes the data, and the Accelerator comes in the function that trains."""
    found = convert_source(Source.from_text(AHEAD.replace("MADE", made), PATH))
    assert found.status == "converted", found.reason
    assert (
        any("names one device for every process" in message for message in named(found, "ACC714")) is is_said
    )
