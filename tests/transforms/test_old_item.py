"""Losses read by `.data[0]`, as before torch 0.5."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.support import codes, convert, place_of
from tests.transforms.test_effects_in_modules import converted, findings


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("update", "optimizer.step()\nlast = loss.data[0]", "last = loss.item()"),
        ("end", "for x, y in loader:\n    figure = F.nll_loss(model(x), y, size_average=False).data[0] / 2\n",
         "figure = F.nll_loss(output, y, size_average=False).item() / 2"),
        ("update", "optimizer.step()\nlast = loss.data.cpu()[0]", "last = loss.item()"),
        ("update", "optimizer.step()\nlast = loss.detach().cpu().numpy()[0]", "last = loss.item()"),
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
        "loss = F.cross_entropy(model(x), y, reduction='none')\nfirst = loss.data[0]\nloss = loss.mean()\n"
        "loss.backward()",
        "row = x.data[0]",
        "row = x.cpu().numpy()[0]",
        "loss = F.cross_entropy(model(x), y)\nrow = loss.tolist()[0]",
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


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("part = F.cross_entropy(model(x), y).div(2)\nother = model(x).pow(2).sum(1).mean().div(2)\n"
         "loss = part + 0.1 * other", ["part", "other", "loss"]),
        ("far = weigh(x)\nnear = -0.5 * model(x).norm(2)\nloss = far + near", ["far", "near"]),
        ("loss = F.cross_entropy(model(x), y)\nright = (model(x).argmax(1) == y).float().mean()", ["right"]),
        ("loss = 0\nfor _ in range(2):\n    loss += F.cross_entropy(model(x), y)", ["loss"]),
    ],
)  # fmt: skip
def test_what_a_loss_is_made_of(before: str, names: list[str]) -> None:
    reads = "".join(f"print({name}.data[0])\n" for name in names)
    conversion = convert(
        setup="from elsewhere import weigh", loss=before, update=f"optimizer.step()\n{reads}"
    )
    assert ".data[0]" not in conversion.new_text
    for name in names:
        assert f"{name}.item()" in conversion.new_text


def test_what_a_method_keeps() -> None:
    runner = (
        "class Runner:\n    def step(self, model, x):\n        self.near = weigh(x)\n"
        "        self.loss = self.near + model(x).mean()\n        self.loss.backward()\n"
        "    def figures(self):\n        return {'near': self.near.data[0], 'all': self.loss.data[0]}\n"
        "runner = Runner()\nrunner.step(model, x)\nprint(runner.figures())"
    )
    conversion = convert(setup="from elsewhere import weigh", end=runner)
    assert "{'near': self.near.item(), 'all': self.loss.item()}" in conversion.new_text


def test_what_has_elements_beside_a_loss() -> None:
    before = (
        "each = F.cross_entropy(model(x), y, reduction='none')\nfirst = each.data[0]\n"
        "each = each.mean()\nloss = each + model(x).mean()"
    )
    after = "optimizer.step()\nprint(loss.data[0], x.data[0], model(x).max(1)[0].data[0], norms.data[0])"
    conversion = convert(
        loss=before, update="norms = model(x).norm(2, dim=1)\n" + after.replace("\n", "\n", 1)
    )
    assert "first = each.data[0]" in conversion.new_text
    assert "loss.item(), x.data[0], model(x).max(1)[0].data[0], norms.data[0]" in conversion.new_text
    assert not [f for f in conversion.remaining if f.code == "ACC124"]


def test_what_may_be_one_number_is_named_once() -> None:
    reads = "optimizer.step()\nerror = weigh(x)\nprint(loss.data[0], error.data[0], rows.data[0])\nprint(error.data[0])"
    conversion = convert(setup="from elsewhere import weigh, rows", update=reads)
    (left,) = [f for f in conversion.remaining if f.code == "ACC124"]
    assert "`error.item()` then (also in line" in left.message
    assert "loss.item(), error.data[0], rows.data[0]" in conversion.new_text


def test_a_script_that_reads_no_loss_so_is_let_be() -> None:
    reads = "optimizer.step()\nerror = weigh(x)\nprint(loss.item(), error.data[0])"
    assert "ACC124" not in codes(convert(setup="from elsewhere import weigh", update=reads))


def test_losses_that_another_module_reads_are_named_once(tmp_path: Path) -> None:
    helper = """
    def figure(loss):
        return {last}, loss.data[0]
    def evaluate(model, x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        first = model(x).data[0]
        return figure(loss)
    """
    for last in ("loss.data[0]", "loss.data.cpu().numpy()[0]"):
        found = converted(
            tmp_path, helper.format(last=last), epoch="a = evaluate(model, x, y)\nb = evaluate(model, x, y)"
        )
        (said,) = findings(found, "ACC124")
        assert said.startswith(f"`figure` reads `{last}` (helper.py, line ")


@pytest.mark.parametrize("line", ["losses.data[0]", "x.data[0]", "loss.data[1]", "loss.item()"])
def test_what_is_no_loss_of_another_module(tmp_path: Path, line: str) -> None:
    helper = f"def evaluate(loss, losses, x):\n    return {line}"
    assert not findings(converted(tmp_path, helper, epoch="a = evaluate(x.sum(), x, x)"), "ACC124")


def test_losses_of_a_function_that_nobody_calls(tmp_path: Path) -> None:
    helper = "def evaluate(loss):\n    return loss.data[0]\ndef other(x):\n    return x"
    assert not findings(converted(tmp_path, helper, epoch="a = other(x)"), "ACC124")
