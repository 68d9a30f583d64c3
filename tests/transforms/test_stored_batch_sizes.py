"""Models that keep the configured batch size for the state that they carry."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

MODEL = """
class Reader(nn.Module):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
        self.gru = nn.GRU(4, 2)
        self.begin()

    def begin(self, last=None):
        {size}
        self.state = torch.zeros(1, {state}, 2)

    def forward(self, x):
        {forward}
        output, self.state = self.gru(x[None], self.state)
        return output[-1]
"""
BUILD = "model = Reader(8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
CASES = {
    "size = last or 3": ("size", False),
    "size = self.batch_size": ("size", True),
    "size = 1": ("last if last else self.batch_size", True),
}


def said(
    batch_size: str, size: str, state: str, forward: str = "pass", batch: str = "model.begin()"
) -> list[str]:
    setup = MODEL.format(size=size, state=state, forward=forward)
    conversion = convert(batch_size, setup=setup, build=BUILD, batch=batch)
    return [f.message for f in conversion.remaining if f.code == "ACC404"]


@pytest.mark.parametrize("size", CASES)
def test_a_state_of_the_configured_size_fits_no_part_of_a_batch(size: str) -> None:
    state, expected = CASES[size]
    found = said("total", size, state)
    assert bool(found) == expected
    assert all("batch_size // accelerator.num_processes" in message for message in found)


def test_whole_batches_fit() -> None:
    assert not said("per-process", "size = self.batch_size", "size")


def test_sizes_that_are_set_for_each_batch() -> None:
    assert not said("total", "size = self.batch_size", "size", forward="self.batch_size = x.size(0)")
    assert not said(
        "total", "size = self.batch_size", "size", batch="model.batch_size = len(x)\nmodel.begin()"
    )
