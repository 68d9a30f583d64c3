"""What packages that were not read bring along by a star, and their functions that are called like moves."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

TEXT = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
{imports}
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
for x, y in loader:
    {batch}
    accelerator.backward(((model(x) - y) ** 2).mean())
{end}
"""


def named(**lines: str) -> list[tuple[str, str]]:
    text = TEXT.format(**{"imports": "", "batch": "pass", "end": "", **lines})
    return [(one.demand, one.found) for one in validate(text, None, Knowledge()).of(Status.NAMED)]


@pytest.mark.parametrize("end", ['os.remove("a")', 'shutil.rmtree("a")', 'subprocess.run(["a"])'])
def test_a_star_binds_what_is_called_like_a_module_of_python(end: str) -> None:
    assert [demand for demand, _ in named(imports="from unread.files import *", end=end)] == ["once"]
    assert named(imports="from unread.files import remove", end=end) == []


@pytest.mark.parametrize(
    "batch", ["x = to_cuda(x)", "x, y = to_gpu((x, y))", "x = tools.to_device(x, non_blocking=True)"]
)
def test_a_move_of_an_unread_package_without_a_device(batch: str) -> None:
    imports = "import tools\nfrom unread import to_cuda, to_gpu"
    (found,) = named(imports=imports, batch=batch)
    assert found[0] == "device"
    assert "first GPU" in found[1]


@pytest.mark.parametrize(
    "batch",
    [
        "x = to_cuda(x, accelerator.device)",
        "w = to_cuda(torch.ones(3))",
        "x = scaled(x)",
        "x = x.to(accelerator.device)",
    ],
)
def test_other_calls_of_it_are_quiet(batch: str) -> None:
    assert not [
        one for one in named(imports="from unread import to_cuda, scaled", batch=batch) if one[0] == "device"
    ]
