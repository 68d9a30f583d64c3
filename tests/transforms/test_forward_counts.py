"""What a model makes of the number of its own forwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import convert, frame

NET = """
class Net(nn.Linear):
    def __init__(self, total=1):
        super().__init__(4, 2)
        self.calls, self.total = 0, total

    def forward(self, x):
        {line}
        self.calls {count}
        return super().forward(x)
"""
BUILD = "model = Net({given})\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def said(line: str, count: str = "+= 1", given: str = "", batch_size: str = "per-process") -> list[str]:
    conversion = convert(
        batch_size, setup=NET.format(line=line, count=count), build=BUILD.format(given=given)
    )
    return [f.message for f in conversion.remaining if f.code == "ACC407"]


@pytest.mark.parametrize(
    "line",
    [
        "x = x * max(0.5, 1 - 0.1 / 4000 * self.calls)",
        "x = x / (1 + self.calls)",
        "if self.calls > 1000:\n            x = x.relu()",
    ],
)
def test_what_goes_by_a_count_of_forwards_is_named(line: str) -> None:
    (message,) = said(line)
    assert message.startswith(
        "`Net` goes by `self.calls`, its own count of forwards: of N processes each makes 1/N"
    )
    assert not said(line, batch_size="total")


@pytest.mark.parametrize(
    ("line", "count", "given"),
    [
        ("if self.calls % 100 == 0: print(x)", "+= 1", ""),
        ("if self.calls == 0: print(x)", "+= 1", ""),
        ("if self.calls > 0: x = x.relu()", "+= 1", ""),
        ("x = x / (1 + self.calls)", "= 1", ""),
        ("x = x / (1 + self.calls)", "+= 1", "total=len(data)"),
        ("x = x * self.calls / self.total", "+= 1", "total=400"),
    ],
)
def test_other_counts_are_not(line: str, count: str, given: str) -> None:
    assert not said(line, count, given)


def test_of_another_module(tmp_path: Path) -> None:
    net = NET.format(line="x = x / (1 + self.calls)", count="+= 1")
    (tmp_path / "net.py").write_text("from torch import nn\n" + net)
    (tmp_path / "train.py").write_text(frame(imports="from net import Net", build=BUILD.format(given="")))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    (message,) = [f.message for f in found.remaining if f.code == "ACC407"]
    assert "`Net` (net.py, line 10) goes by `self.calls`" in message
