"""Files that Python does not parse any more for torch's `async=`: converted, with today's name where a move is left."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_transformed, codes

LOOP = """\
import torch


def train(loader, model, optimizer):
    for x, y in loader:
        x = x.cuda(async=True)
        y = y.cuda(async=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def draw(model, size):
    return model(torch.randn(size, 4).cuda(async=True)).cpu(){tail}
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from loop import draw, train

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=2)
train(loader, model, optimizer)
print(draw(model, 3))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("noise = torch.randn(8, 4).cuda(async=True)",
         "noise = torch.randn(8, 4).to(accelerator.device, non_blocking=True)"),
        ("frozen = torch.randn(8, 4)\nhalf = frozen.type(torch.float16, async=False)",
         "frozen = torch.randn(8, 4)\nhalf = frozen.type(torch.float16, non_blocking=False)"),
    ],
)  # fmt: skip
def test_a_script(before: str, after: str) -> None:
    assert "ACC123" in codes(check_transformed("ready", before, after))


def test_batches_need_no_move(tmp_path: Path) -> None:
    found = _converted(tmp_path, LOOP.format(tail=""))
    loop = next(c for c in found if c.source.path is not None and c.source.path.name == "loop.py")
    assert "        x = x" not in loop.new_text
    assert [f.line for f in loop.applied if f.code == "ACC123"] == [6, 7, 15]


def test_a_module_that_only_draws_is_mended_with_the_script(tmp_path: Path) -> None:
    helper = "import torch\n\n\ndef draw(model, size):\n    return torch.ones(size).cuda(async=True)\n"
    (tmp_path / "helper.py").write_text(helper)
    script = TRAIN.replace("import draw, train", "import train\nfrom helper import draw")
    found = _converted(tmp_path, LOOP.format(tail=""), script)
    mended = next(c for c in found if c.source.path is not None and c.source.path.name == "helper.py")
    assert mended.new_text == helper.replace("async", "non_blocking")
    assert [(f.code, f.line) for f in mended.applied] == [("ACC123", 5)]


def test_other_uses_of_the_name_are_named(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP.format(tail="\n\n\ndef read(async):\n    return async"))
    (tmp_path / "train.py").write_text(TRAIN)
    (found,) = convert_project(Source.read(tmp_path / "train.py"))
    assert found.status == "refused"
    assert found.reason.endswith("seems to be in loop.py, line 18, which does not parse: fix it")


def _converted(folder: Path, loop: str, script: str = TRAIN) -> list[Conversion]:
    (folder / "loop.py").write_text(loop)
    (folder / "train.py").write_text(script)
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    for one in found:
        ast.parse(one.new_text)
    return found
