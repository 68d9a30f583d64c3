"""What a criterion, or another method that works the loss out, keeps of each process's own batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import convert, frame

CLASS = """
class Smoothed({base}):
    def __init__(self):
        {init}
        self.kept = torch.zeros(64, 2)

    def {name}(self, i, out, y):
        p = F.softmax(out, 1)
{body}

keeper = Smoothed()
"""
ENTRIES = """\
self.kept[i] = 0.7 * self.kept[i] + 0.3 * p.detach()
return F.cross_entropy(out, y) + (self.kept[i] * p).sum(1).mean()"""
RUNNING = """\
self.kept = 0.9 * self.kept + 0.1 * out.detach().mean()
weight = self.kept + 1
return F.cross_entropy(out, y) * weight.mean()"""
LATER = """\
loss = F.cross_entropy(out, y) + (self.kept.mean(0) * p).mean()
self.kept = out.data
return loss"""
SHOWN = """\
self.kept += out.detach().mean()
if i % 10 == 0:
    print(self.kept)
return F.cross_entropy(out, y)"""
AT_ONCE = """\
self.kept = p.detach()
return F.cross_entropy(out, y) + (self.kept * p).mean()"""
MODULE = {"base": "nn.Module", "init": "super().__init__()", "name": "forward"}
PLAIN = {"base": "object", "init": "pass", "name": "loss"}


def written(body: str, kind: dict[str, str]) -> str:
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    return CLASS.format(body=indented, **kind)


def named(conversion: Conversion) -> list[str]:
    prove([conversion], conversion)
    return [f.message for f in conversion.remaining if f.code in ("ACC705", "ACC706")]


@pytest.mark.parametrize("body", [ENTRIES, RUNNING, LATER])
@pytest.mark.parametrize(("kind", "run"), [(MODULE, "keeper"), (PLAIN, "keeper.loss")])
def test_what_goes_into_the_next_loss_is_named(body: str, kind: dict[str, str], run: str) -> None:
    loss = f"out = model(x)\nvalue = {run}(i, out, y)\nloss = value * 2"
    (message,) = named(convert(setup=written(body, kind), loss=loss))
    assert "self.kept" in message or "weight.mean()" in message


@pytest.mark.parametrize("body", [SHOWN, AT_ONCE])
def test_what_the_next_loss_does_not_see_is_not(body: str) -> None:
    assert named(convert(setup=written(body, PLAIN), loss="loss = keeper.loss(i, model(x), y)")) == []


def test_who_is_no_part_of_the_loss_is_not() -> None:
    loss = "keeper.loss(i, model(x), y)\nloss = F.cross_entropy(model(x), y)"
    assert named(convert(setup=written(ENTRIES, PLAIN), loss=loss)) == []


def test_a_criterion_of_another_module(tmp_path: Path) -> None:
    head = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    (tmp_path / "losses.py").write_text(head + written(ENTRIES, MODULE).replace("keeper = Smoothed()", ""))
    text = frame(
        imports="from losses import Smoothed",
        setup="keeper = Smoothed()",
        loss="loss = keeper(i, model(x), y)",
    )
    (tmp_path / "train.py").write_text(text)
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    (message,) = named(conversion)
    assert "losses.py:13" in message


BANK = """
class Bank({base}):
    def __init__(self):
        {init}
        self.rows = torch.zeros(64, 2)

    def {name}(self, x):
        scores = x @ self.rows.t()
        return scores / 0.1

    def note(self, features, index):
        old = self.rows[index]
        {line}

bank = Bank()
"""
WORKED_OUT = "out = model(x)\nloss = F.cross_entropy(out, y) + {run}(out).pow(2).mean()"


@pytest.mark.parametrize("kind", [MODULE, PLAIN])
@pytest.mark.parametrize(
    "line",
    [
        "self.rows.index_copy_(0, index, old * 0.5 + features.data * 0.5)",
        "self.rows[index] = old + features.data",
    ],
)
def test_a_bank_that_is_filled_beside_the_loss_is_named(kind: dict[str, str], line: str) -> None:
    run = "bank" if kind is MODULE else "bank.loss"
    setup = BANK.format(line=line, **kind)
    conversion = convert(
        setup=setup, loss=WORKED_OUT.format(run=run), update="optimizer.step()\nbank.note(out, y)"
    )
    (message,) = named(conversion)
    assert message.startswith("the loss goes with what each process's round before left")


@pytest.mark.parametrize(
    ("line", "run", "noted"),
    [
        ("self.count = len(features)", "bank.loss", "out, y"),  # not read by the loss
        ("self.rows[index] = old + features.data", "torch.sigmoid", "out, y"),
        ("self.rows[index] = old + 1", "bank.loss", "1, 2"),  # nothing of the batch
    ],
)
def test_other_notes_are_not(line: str, run: str, noted: str) -> None:
    conversion = convert(
        setup=BANK.format(line=line, **PLAIN),
        loss=WORKED_OUT.format(run=run),
        update=f"optimizer.step()\nbank.note({noted})",
    )
    assert not named(conversion)
