"""Scripts that nest deeply are converted like others; what nests too deeply is said to be unread."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.deep_nesting import deeply
from accelify.obligations.validating import validate
from accelify.source import Source

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

{deep}
loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=4)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""
SUM = "total = " + " + ".join(f"{i}.0" for i in range(700))
CHAIN = "text = 'a'" + "".join(f".replace('{i}', 'b')" for i in range(60))
BRANCHES = "if kind == 0:\n    y = 0\n" + "".join(f"elif kind == {i}:\n    y = {i}\n" for i in range(1, 300))


@pytest.mark.parametrize("deep", [SUM, CHAIN, f"kind = 3\n{BRANCHES}"])
def test_a_script_that_nests_deeply(deep: str) -> None:
    plain = convert_source(Source.from_text(SCRIPT.format(deep="total = 1")))
    found = convert_source(Source.from_text(SCRIPT.format(deep=deep)))
    assert found.status == "converted", found.reason
    assert found.new_text.replace(deep, "total = 1") == plain.new_text
    validation = validate(found.new_text)
    assert validation.obligations
    assert not validation.unread


def test_a_module_that_nests_deeply(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(SUM + "\n")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(deep="from sums import total\n"))
    (found,) = convert_project(Source.read(script))
    assert found.status == "converted", found.reason


def test_what_is_deeper_than_any_stack() -> None:
    def down(depth: int) -> int:
        return down(depth + 1)

    before = sys.getrecursionlimit()
    with pytest.raises(RecursionError):
        deeply(lambda: down(0))
    assert sys.getrecursionlimit() == before
    assert threading.stack_size() == 0


def test_other_errors_and_what_is_shallow() -> None:
    assert deeply(lambda: threading.current_thread() is threading.main_thread())
    with pytest.raises(ZeroDivisionError):
        deeply(lambda: 1 // 0)
