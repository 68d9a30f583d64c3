"""Tensors that are read on the host where the script uses no GPU, and the Accelerator uses none either."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
args = parser.parse_args()
use_gpu = args.gpu
there = args.gpu and torch.cuda.is_available()
"""
BUILD = """
model = nn.Linear(4, 2)
if args.gpu:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
READ = """
if {test}:
    rows = model(x).data.cpu().numpy()
else:
    rows = model(x).data{copy}.numpy()
"""


def lines_read(test: str) -> str:
    """The lines that read, converted, in a script that moves its model where it is told to."""
    found = convert(
        setup=OPTIONS,
        build=BUILD,
        batch="if args.gpu:\n    x, y = x.cuda(), y.cuda()\n",
        update="optimizer.step()\n" + READ.format(test=test, copy=""),
    )
    assert "cpu=not args.gpu" in found.new_text
    return f"\n{place_of(found.new_text, 'update')}\n"


@pytest.mark.parametrize("test", ["args.gpu", "use_gpu"])
def test_the_branch_without_a_gpu_stays(test: str) -> None:
    assert READ.format(test=test, copy="") in lines_read(test)


@pytest.mark.parametrize("test", ["there", "args.gpu and torch.cuda.is_available()", "i > 2"])
def test_where_a_gpu_may_be_used_all_the_same(test: str) -> None:
    assert READ.format(test=test, copy=".cpu()") in lines_read(test)
