"""ACC109: weights of a file of a DataParallel that are merged into the model's own; ACC207 of their loading."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

TRAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
def main(args):
    model = nn.Linear(3, 1)
    {wrap}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {load}
    for x in DataLoader(torch.randn(8, 3), batch_size=2):
        optimizer.zero_grad()
        model(x.cuda()).mean().backward()
        optimizer.step()
parser = argparse.ArgumentParser()
parser.add_argument("--tune")
main(parser.parse_args())
"""
WRAPPED = "model = nn.DataParallel(model).cuda()"
OWN = "own = model.state_dict()"
MERGED = "own.update({k: v for k, v in read.items() if k in own})"
LOADED = "model.load_state_dict(own)"
TAKEN = '{name.removeprefix("module."): weight for name, weight in '
PLACED = "torch.load(args.tune, map_location=accelerator.device)"


def _converted(*lines: str, wrap: str = WRAPPED) -> Conversion:
    load = "\n".join(lines).replace("\n", "\n    ")
    return convert_source(Source.from_text(TRAIN.format(wrap=wrap, load=load), PATH))


@pytest.mark.parametrize(
    ("lines", "edited"),
    [
        (["read = torch.load(args.tune)", OWN, MERGED, LOADED], f"read = {TAKEN}{PLACED}.items()}}\n"),
        (
            ["read = torch.load(args.tune)", "read = read['net']", OWN, MERGED, LOADED],
            f"read = {PLACED}\n    read = {TAKEN}read['net'].items()}}\n",
        ),
        (
            [
                "read = torch.load(args.tune)['net']",
                OWN,
                "good = {k: v for k, v in read.items() if v.size() == own[k].size()}",
                "own.update(good)",
                LOADED,
            ],
            f"read = {TAKEN}{PLACED}['net'].items()}}\n",
        ),
        (
            ["read = torch.load(args.tune)", OWN, "own.update(read['net'])", LOADED],
            f"own.update({TAKEN}read['net'].items()}})\n",
        ),
        (
            [
                "read = torch.load(args.tune)",
                OWN,
                "for k, v in read.items():\n    if k in own:\n        own[k] = v",
                LOADED,
            ],
            f"read = {TAKEN}{PLACED}.items()}}\n",
        ),
    ],
)
def test_the_names_lose_their_prefix_where_they_are_read(lines: list[str], edited: str) -> None:
    found = _converted(*lines)
    assert f"    {edited}" in found.new_text
    assert found.new_text.count(".removeprefix(") == 1
    again = convert_source(Source.from_text(found.new_text, PATH))
    assert again.new_text == found.new_text


def test_a_dictionary_that_is_one_of_two_is_said() -> None:
    choice = "if 'net' in read:\n    read = read['net']"
    found = _converted("read = torch.load(args.tune)", choice, OWN, MERGED, LOADED)
    assert ".removeprefix(" not in found.new_text
    assert "# TODO(accelify ACC712): take `module.` off the names" in found.new_text


@pytest.mark.parametrize(
    "lines",
    [
        ["read = {'bias': torch.zeros(1)}", OWN, MERGED, LOADED],
        ["read = torch.load(args.tune)", OWN, "print(len(read), len(own))"],
        [
            "read = torch.load(args.tune)",
            OWN,
            "for k, v in read.items():\n    own[k[7:] if k.startswith('module.') else k] = v",
            LOADED,
        ],
    ],
)
def test_what_is_from_no_file_or_minds_the_prefix_stays(lines: list[str]) -> None:
    found = _converted(*lines)
    assert found.status == "converted"
    assert ".removeprefix(" not in found.new_text
    assert "TODO(accelify ACC712)" not in found.new_text


def test_a_model_that_was_in_no_wrapper() -> None:
    found = _converted("read = torch.load(args.tune)", OWN, MERGED, LOADED, wrap="model.cuda()")
    assert ".removeprefix(" not in found.new_text
    assert "ACC109" not in codes(found)
    assert PLACED in found.new_text
