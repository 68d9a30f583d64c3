"""Each place that is left to a person says what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.findings import Finding, Severity
from accelify.linting import lint
from accelify.project import Imports
from accelify.rule_codes import PUBLIC, by_hand, published, says_what_to_do
from accelify.rules import parts
from accelify.source import Source

# Their findings are notes alone.
_NOTES = {code for code, part in parts().items() if part.rule.severity is Severity.INFO}


@pytest.mark.parametrize("code", sorted(set(parts()) & set(PUBLIC) - _NOTES))
def test_each_rule_has_a_way_out_that_is_taken_for_one(code: str) -> None:
    assert says_what_to_do(f"something is wrong; {by_hand(code)}")
    said = published(Finding("a.py", 1, 1, code, "", "something is wrong; the same at line 3", fixable=False))
    assert said.message == f"something is wrong; {by_hand(code)}; the same at line 3"
    assert published(said).message == said.message


@pytest.mark.parametrize(
    "message",
    [
        "`x` holds the share of a process: put it together first",
        "`x` is done twice; let all wait in between; the same at line 3",
        "`x` differs; if it is to count those of all, multiply it by `accelerator.num_processes`",
    ],
)
def test_a_message_that_has_one_stays(message: str) -> None:
    assert published(Finding("a.py", 1, 1, "ACC702", "", message, fixable=False)).message == message


@pytest.mark.parametrize(
    ("cause", "way"),
    [
        (
            "they go through all of `loader`, which is not prepared (line 9)",
            "prepare it: `accelerator.prepare(...)`",
        ),
        (
            "the processes train on data that differ between them: `torch.randn(4)` draws random numbers (line 2)",
            "draw and choose them alike on all: with one seed, or as the main process does",
        ),
        (
            "`total / len(data)`, as reduced by sum (line 9), from this rank's share of `loader`",
            "reduce the sum and the number that it is divided by, each by itself",
        ),
    ],
)
def test_some_causes_have_one_way_out_whatever_comes_of_them(cause: str, way: str) -> None:
    for code in ("ACC701", "ACC705"):
        assert published(Finding("a.py", 1, 1, code, "", cause, fixable=False)).message == f"{cause}; {way}"


@pytest.mark.parametrize("code", ["`a; let`", "a, b: the others then wait for ever"])
def test_code_and_consequences_are_no_way_out(code: str) -> None:
    assert not says_what_to_do(f"{code} is wrong")


GAN = """\
import json
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for (x,) in loader:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append((loss.item(), torch.log10(loss).item()))
json.dump(history, open("history.json", "w"))
"""


def test_what_is_left_of_a_script_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GAN)
    found = lint(Source.read(tmp_path / "train.py"), Imports()).findings
    left = [one for one in found if not one.fixable and one.severity is not Severity.INFO]
    assert [one.line for one in left] == [15], "one cause is one place"
    assert all(says_what_to_do(one.message) for one in left), [one.message for one in left]
