"""Losses read by `.data[0]`, as before torch 0.5."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert, place_of


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("update", "optimizer.step()\nlast = loss.data[0]", "last = loss.item()"),
        ("end", "for x, y in loader:\n    figure = F.nll_loss(model(x), y, size_average=False).data[0] / 2\n",
         "figure = F.nll_loss(output, y, size_average=False).item() / 2"),
        ("end", "whole = model(x).pow(2).mean()\nboth = whole + 2 * F.mse_loss(x, x)\nlast = both.data[0]",
         "last = both.item()"),
        ("end", "class Runner:\n    def step(self, model, x):\n        self.loss = model(x).sum()\n"
         "        self.loss.backward()\n    def figure(self):\n        return self.loss.data[0]\n"
         "runner = Runner()\nrunner.step(model, x)\nlast = runner.figure()", "        return self.loss.item()\n"),
    ],
)  # fmt: skip
def test_what_is_one_number(place: str, before: str, after: str) -> None:
    conversion = convert(**{place: before})
    assert after in place_of(conversion.new_text, place)
    assert ".data[0]" not in conversion.new_text
    assert "ACC124" in codes(conversion)


@pytest.mark.parametrize(
    "snippet",
    [
        "row = x.data[0]",
        "weights = F.cross_entropy(model(x), y, reduction='none')\nfirst = weights.data[0]",
        "loss = model(x)\nloss.backward(torch.ones(8, 2))\nfirst = loss.data[0]",
        "norms = model(x).pow(2).mean(1)\nfirst = norms.data[0]",
        "part = F.mse_loss(x, x)\nif epoch:\n    part = x\nfirst = part.data[0]",
        "criterion = nn.CrossEntropyLoss(reduce=False)\nfirst = criterion(model(x), y).data[0]",
    ],
)
def test_what_may_have_elements(snippet: str) -> None:
    lines = "\n".join(f"    {line}" for line in snippet.splitlines())
    conversion = convert(end=f"def figure(model, x, y, epoch):\n{lines}\n    return 0\n")
    assert "ACC124" not in codes(conversion)
