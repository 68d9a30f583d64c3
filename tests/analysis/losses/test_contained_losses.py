"""Losses that a container holds, or that the parts of a model give."""

from __future__ import annotations

import pytest

from accelify.analysis.losses.reductions import LossReductions
from tests.analysis.support import model_of

SCRIPT = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.crit = nn.MSELoss(reduction={reduction!r})
    def forward(self, x, y=None):
        out = self.layer(x)
        loss = self.crit(out, y)
        return {part}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.one = Part()
        self.also = Part()
    def forward(self, x, y=None):
        {forward}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data):
    {loss}
    loss.backward()
    optimizer.step()
"""
PLAIN = "loss = model(x, y)"
FILL = """losses = []
        for part in self.parts:
            losses.append(part(x, y))
        """


def reduction_of(kind: str, forward: str, loss: str = PLAIN, part: str = "loss") -> str:
    text = SCRIPT.format(reduction=kind, forward=forward, loss=loss, part=part)
    script = model_of(text)
    return LossReductions(script).of(script.backwards[0].loss)


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize(
    ("forward", "loss", "part"),
    [
        ("return self.one(x, y)", PLAIN, "loss"),
        (
            "total = 0\n        for part in self.parts:\n            total += part(x, y)\n        return total",
            PLAIN,
            "loss",
        ),
        (
            "total = 0\n        for i, part in enumerate(self.parts):\n            out, one = part(x, y)\n"
            "            total = total + one\n        return total",
            PLAIN,
            "out, loss",
        ),
        ("return self.parts[0](x, y)", PLAIN, "loss"),
        (FILL + "return sum(losses)", PLAIN, "loss"),
        (FILL + "return losses", "loss = sum(model(x, y))", "loss"),
        (FILL + "return losses, x", "losses, _ = model(x, y)\n    loss = sum(losses)", "loss"),
        ("return sum(part(x, y) for part in self.parts)", PLAIN, "loss"),
        ("return sum([self.one(x, y), self.also(x, y)])", PLAIN, "loss"),
        ("return torch.stack([part(x, y) for part in self.parts]).sum()", PLAIN, "loss"),
        (
            "return {'box': self.one(x, y), 'kind': self.also(x, y)}",
            "found = model(x, y)\n    loss = sum(found.values())",
            "loss",
        ),
        (
            "return {'box': self.one(x, y), 'kind': self.also(x, y)}",
            "found = model(x, y)\n    loss = sum(one for one in found.values())",
            "loss",
        ),
        (
            "found = {}\n        found['box'] = self.one(x, y)\n        found['kind'] = self.also(x, y)\n"
            "        return found",
            "found = model(x, y)\n    loss = found['box'] + 2 * found['kind']",
            "loss",
        ),
        (
            "return {'box': self.one(x, y)}",
            "loss = 0\n    for name, one in model(x, y).items():\n        loss = loss + one",
            "loss",
        ),
        (
            "return [self.one(x, y), self.also(x, y)]",
            "loss = sum(w * one for w, one in zip([1, 2], model(x, y)))",
            "loss",
        ),
    ],
)
def test_losses_are_followed_into_what_holds_them(kind: str, forward: str, loss: str, part: str) -> None:
    assert reduction_of(kind, forward, loss, part) == kind


@pytest.mark.parametrize(
    ("forward", "loss"),
    [
        ("return {'box': self.one(x, y), 'kind': x.mean()}", "loss = sum(model(x, y).values())"),
        ("return [self.one(x, y), x.mean()]", "loss = sum(model(x, y))"),
    ],
)
def test_a_sum_and_a_mean_in_one_container(forward: str, loss: str) -> None:
    assert reduction_of("sum", forward, loss) == "mixed"
    assert reduction_of("mean", forward, loss) == "mean"


@pytest.mark.parametrize(
    ("forward", "loss"),
    [
        ("return x", "loss = sum(model(x).values())"),
        ("return x", "loss = sum(losses)"),
        ("return {'box': self.one(x, y)}", "loss = model(x, y)['other']"),
        (FILL + "return torch.stack(losses)", "loss = sum(model(x, y))"),
    ],
)
def test_what_is_not_seen_is_unclear(forward: str, loss: str) -> None:
    assert reduction_of("sum", forward, loss) == "unclear"
