"""Models whose own shapes hold the batch size: shared out where no process gets a smaller batch."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes, frame

BUILD = """
class Net(nn.Module):
    def __init__(self, batch_size):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.ones = nn.Parameter(torch.ones(batch_size, 2), requires_grad=False)

    def forward(self, x):
        return self.layer(x) * self.ones

model = Net(8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
MADE = "loader = DataLoader(data, batch_size=8, shuffle=True)"
WHOLE = "loader = DataLoader(data, 8, True, drop_last=True)"


def converted(made: str, size: str) -> Conversion:
    text = frame(build=BUILD).replace(MADE, made)
    assert made in text
    return convert_source(Source.from_text(text, PATH), ConvertOptions(size))


def test_loaders_that_leave_smaller_batches_out_are_shared() -> None:
    conversion = converted(WHOLE, "per-process")
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text
    assert not codes(conversion) & {"ACC402", "ACC404"}


@pytest.mark.parametrize(
    ("made", "size", "remedy"),
    [
        (MADE, "per-process", "drop_last=True"),
        (MADE, "total", "drop_last=True"),
        (WHOLE, "total", "--batch-size per-process"),
    ],
)
def test_batches_that_can_be_smaller_stay_whole(made: str, size: str, remedy: str) -> None:
    conversion = converted(made, size)
    assert "accelerator.prepare(model, optimizer)" in conversion.new_text
    [said] = [f.message for f in conversion.remaining if f.code == "ACC404"]
    assert remedy in said
