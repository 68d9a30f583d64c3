"""Moves that convert drops: each is proved to be done by `prepare`, stays where it is not, or is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_source
from accelify.obligations import Status
from accelify.proving import prove, settled
from accelify.source import Source
from accelify.transforms.move_fates import Fates
from tests.test_fixtures import FIXTURES, KINDS, replaces_ddp

PATH = Path("/nowhere/train.py")
FRAME = """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from summaries import summary
{definitions}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
{build}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{ready}
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
{end}
"""
PLAIN = "model = nn.Linear(4, 2).to(device)"
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


def build():
    net = Net()
    net.to(device)
    return net
"""


def converted(build: str = PLAIN, ready: str = "", end: str = "", definitions: str = "") -> Conversion:
    text = FRAME.format(build=build, ready=ready, end=end, definitions=definitions)
    found = convert_source(Source.from_text(text, PATH), ConvertOptions())
    assert found.status == "converted", found.reason
    return found


RIGHT = {
    "in its line": {},
    "by itself": {"build": "model = nn.Linear(4, 2)\nmodel.cuda()"},
    "in a condition": {"build": "model = nn.Linear(4, 2)\nif torch.cuda.is_available():\n    model.cuda()"},
    "made by a function": {"build": "model = build()", "definitions": NET},
    "a part of it": {"build": "model = Net().to(device)", "definitions": NET, "end": "model.encoder(x)"},
    "evaluated afterwards": {"end": "model.eval()\nprint(model(x).sum().item())"},
    "copied afterwards": {"end": "best = copy.deepcopy(model)\nbest(x)"},
    "under another name": {"build": "net = nn.Linear(4, 2)\nmodel = net.to(device)"},
    "a loss with weights": {"ready": "criterion = nn.CrossEntropyLoss(weight=torch.ones(2)).to(device)"},
    "a list of layers": {
        "build": "model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).to(device)"
    },
    "counted": {"ready": "print(sum(p.numel() for p in model.parameters()))"},
    "saved": {"end": "torch.save(model.state_dict(), 'model.pt')"},
}


@pytest.mark.parametrize("snippets", RIGHT.values(), ids=RIGHT)
def test_right_conversions_are_proved(snippets: dict[str, str]) -> None:
    conversion = converted(**snippets)
    before = conversion.new_text
    found = prove([conversion], conversion)
    assert conversion.dropped
    assert conversion.new_text == before
    assert {move.place for move in conversion.dropped} == found.moves.keys()
    assert not any(found.moves.values())
    assert {one.status for one in found.obligations if one.demand == "moved"} == {Status.PROVED}


WRONG = {
    "average of its weights": (
        {"definitions": "from torch.optim.swa_utils import AveragedModel"},
        "model, optimizer, loader = ",
        "average = AveragedModel(model)\nmodel, optimizer, loader = ",
    ),
    "prepared on one way": (
        {},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "if data:\n    model = accelerator.prepare(model)\noptimizer, loader = accelerator.prepare(optimizer, loader)",
    ),
    "no argument of prepare": (
        {},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "optimizer, loader = accelerator.prepare(optimizer, loader)",
    ),
    "another object": (
        {"build": PLAIN, "ready": "other = nn.Linear(4, 2)"},
        "model, optimizer, loader = accelerator.prepare(model,",
        "other, optimizer, loader = accelerator.prepare(other,",
    ),
    "by itself": (
        {"build": "model = nn.Linear(4, 2)\nmodel.cuda()"},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "optimizer, loader = accelerator.prepare(optimizer, loader)",
    ),
    "made by a function": (
        {"build": "model = build()", "definitions": NET},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "optimizer, loader = accelerator.prepare(optimizer, loader)",
    ),
    "a part of it before": (
        {"build": "model = Net().to(device)", "definitions": NET},
        "model, optimizer, loader = ",
        "model.encoder(torch.ones(1, 4, device=accelerator.device))\nmodel, optimizer, loader = ",
    ),
    "called before": (
        {},
        "model, optimizer, loader = ",
        "model(torch.ones(1, 4, device=accelerator.device))\nmodel, optimizer, loader = ",
    ),
    "passed to what is not known before": (
        {},
        "model, optimizer, loader = ",
        "summary(model)\nmodel, optimizer, loader = ",
    ),
    "copied before": (
        {},
        "model, optimizer, loader = ",
        "ema = copy.deepcopy(model)\nmodel, optimizer, loader = ",
    ),
    "in a list": (
        {},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "models = [model]\noptimizer, loader = accelerator.prepare(optimizer, loader)\nmodel = models[0]",
    ),
    "a loader": (
        {},
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "model, optimizer = accelerator.prepare(model, optimizer)",
    ),
    "another loader": (
        {"ready": "more = DataLoader(data, batch_size=8)"},
        "for x, y in loader:",
        "for x, y in more:",
    ),
}


@pytest.mark.parametrize(("snippets", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_wrong_conversions_are_named(snippets: dict[str, str], right: str, wrong: str) -> None:
    conversion = converted(**snippets)
    assert right in conversion.new_text, conversion.new_text
    conversion = replace(conversion, new_text=conversion.new_text.replace(right, wrong), again=None)
    found = prove([conversion], conversion)
    assert [one for one in found.of(Status.NAMED) if one.demand == "moved"]
    assert any(finding.code == "ACC710" for finding in conversion.remaining)


def test_a_move_that_prepare_does_not_replace_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the transform drops wrongly comes back, and the rest stays dropped."""
    monkeypatch.setattr(Fates, "_is_placed", lambda self, node: True)
    body = "    net = nn.Linear(4, 2)\n    net = net.to(device)\n    return net(torch.ones(1, 4).cuda())\n"
    score = f"def score():\n{body}"
    conversion = converted(definitions=score, end="score()")
    assert "net.to(" not in conversion.new_text
    found = prove([conversion], conversion)
    assert (
        "    net = net.to(device)\n    return net(torch.ones(1, 4).to(accelerator.device))\n"
        in conversion.new_text
    )
    assert "x.to(" not in conversion.new_text
    assert "nn.Linear(4, 2).to(" not in conversion.new_text
    assert not any(found.moves.values())


@pytest.mark.parametrize("others", [0, 1])
def test_a_module_that_another_script_may_share_is_not_written_for_one(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(Fates, "_is_placed", lambda self, node: True)
    end = "net = nn.Linear(4, 2)\nnet = net.to(device)\nnet(torch.ones(1, 4).cuda())"
    script = converted(end=end)
    module, other = (
        replace(script, source=Source.from_text(script.source.text, PATH.with_name(name)), new_text="")
        for name in ("module.py", "other.py")
    )
    again = script.again
    assert again is not None
    script.again = lambda moves: [*again(moves), replace(module)]
    prove([script, module, *[other][:others]], script)
    assert ("net = net.to(device)" in script.new_text) == (not others)


@pytest.mark.parametrize("kind", KINDS)
def test_goldens_are_proved(kind: str) -> None:
    source = Source.read(FIXTURES / kind / "before.py")
    conversion = convert_source(source, ConvertOptions(replace_ddp=replaces_ddp(kind)))
    found = settled([conversion], conversion)
    assert {move.place for move in conversion.dropped} == found.moves.keys()
    assert not any(found.moves.values())
    assert conversion.new_text == (FIXTURES / kind / "after.py").read_text()


# What their scripts move themselves, still, or move nowhere.
NOT_DROPPED = {"gan: netG", "gan: netD", "gradient_penalty: dataloader", "model_outputs: valid_loader"}


def test_goldens_without_an_argument_of_prepare_are_named() -> None:
    """Each model and loader of those with moves, taken out of `prepare`."""
    found = [one for kind in KINDS for one in _unprepared(kind)]
    assert len(found) >= 50
    assert {text for text, is_named in found if not is_named} == NOT_DROPPED


def _unprepared(kind: str) -> Iterator[tuple[str, bool]]:
    """A golden without each argument of its `prepare`: the argument, and whether it is named."""
    source = Source.read(FIXTURES / kind / "before.py")
    good = convert_source(source, ConvertOptions(replace_ddp=replaces_ddp(kind)))
    for stmt in ast.walk(ast.parse(good.new_text if good.dropped else "")):
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
            continue
        if not ast.unparse(stmt.value.func).endswith("accelerator.prepare"):
            continue
        given, targets = stmt.value.args, getattr(stmt.targets[0], "elts", stmt.targets)
        for number, argument in enumerate(given):
            left = [n for n in range(len(given)) if n != number]
            names, others = (", ".join(ast.unparse(one[n]) for n in left) for one in (targets, given))
            lines = good.new_text.split("\n")
            new = f"{names} = {ast.unparse(stmt.value.func)}({others})" if left else "pass"
            lines[stmt.lineno - 1 : stmt.end_lineno] = [lines[stmt.lineno - 1][: stmt.col_offset] + new]
            text = ast.unparse(argument)
            if not re.search("optim|opt_|sched", text, re.IGNORECASE):
                bad = replace(good, new_text="\n".join(lines), again=None)
                yield f"{kind}: {text}", any(settled([bad], bad).moves.values())
