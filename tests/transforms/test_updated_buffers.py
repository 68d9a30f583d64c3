"""Buffers that a forward moves on by its batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("code", torch.zeros(4))
        self.register_buffer("count", torch.ones(4))

    def forward(self, x):
        {read}
        seen = x.mean(0)
        if self.training:
            {update}
        return self.fc(x - code)
"""
BUILD = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def said(read: str, update: str) -> list[str]:
    conversion = convert(setup=NET.format(read=read, update=update), build=BUILD)
    return [f.message for f in conversion.remaining if f.code == "ACC422"]


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ("self.code = 0.9 * self.code + 0.1 * seen", "`self.code`"),
        ("self.code.data.mul_(0.9).add_(0.1 * seen)", "`self.code`"),
        ("self.code[:2] = x[0, :2]", "`self.code`"),
        (
            "self.count = self.count + seen; self.code = self.code / self.count",
            "`self.count` and `self.code`",
        ),
    ],
)
def test_what_is_moved_on_by_the_batch_is_named(update: str, named: str) -> None:
    (message,) = said("code = self.code", update)
    assert f"`Net` moves {named} on in every forward by one process's own batch" in message


@pytest.mark.parametrize(
    ("read", "update"),
    [
        ("code = 0 if self.training else self.code", "self.code = 0.9 * self.code + 0.1 * seen"),
        ("code = self.code", "self.count = self.count + 1"),
        ("code = self.code", "self.code = self.code * 0.99"),
        ("code = self.code", "dist_fn.all_reduce(seen); self.code = self.code + seen"),
        ("code = 0", "self.code = 0.9 * self.code + 0.1 * seen"),
    ],
)
def test_other_buffers_are_not(read: str, update: str) -> None:
    assert not said(read, update)
