"""Models that a function makes by the factory of the trained one, to look at their weights."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, convert

FACTORY = """
def build(size):
    return {"small": small, "large": large}[size]()

def small():
    return nn.Linear(4, 2)

def large():
    return nn.Linear(4, 2, bias=False)

def look(size):
    probe = build(size)
    {body}
"""
BUILD = "look('small')\nmodel = build('small')\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("body", "prepared"),
    [
        ("total = 0\n    for p in probe.parameters():\n        total += p.numel()\n    return total", False),
        ("print(probe)\n    return len(list(probe.named_modules()))", False),
        ("return sum(p.numel() for p in probe.parameters())", False),
        ("return probe", True),
        ("return probe.state_dict()", True),
        ("return probe(torch.ones(1, 4))", True),
        ("kept.append(probe)", True),
    ],
)
def test_a_model_that_is_only_counted_is_not_prepared(body: str, prepared: bool) -> None:
    text = convert(setup=FACTORY.replace("{body}", body), build=BUILD).new_text
    assert ("probe = accelerator.prepare(probe)" in text) is prepared
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


SECOND = """
import torch
from torch import nn
from torch.utils.data import DataLoader


def main(parallel):
    model = nn.Linear(4, 2).cuda()
    if parallel:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if parallel:
        kept = model.module
    else:
        kept = model
    state = {"weights": kept.state_dict()}
    torch.save(state, "model.pt")


main(False)
"""


def test_a_second_name_of_the_trained_model_is_no_model_to_count() -> None:
    found = convert_source(Source.from_text(SECOND, PATH))
    assert found.status == "converted", found.reason
    assert '{"weights": accelerator.unwrap_model(kept).state_dict()}' in found.new_text
