"""A loop over what the script chooses: a prepared loader on one way and something else on another."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate
from accelify.source import Source

KNOWLEDGE = Knowledge()
SCRIPT = """\
import argparse
import torch
import torchtext
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--stored", action="store_true")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torch.load("data.pt")
{choice}
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
EITHER = "if args.stored:\n    loader = {one}\nelse:\n    loader = {other}"
MADE = "DataLoader(data, batch_size=8)"


@pytest.mark.parametrize(
    ("one", "moved", "named"),
    [
        ("[data[torch.arange(8) + 8 * i] for i in range(8)]", True, True),
        ("DataLoader(data, batch_size=4)", False, False),
        ("[]", False, False),
        ("torchtext.data.BucketIterator(data, batch_size=8)", True, True),
    ],
)
def test_the_way_without_a_prepared_loader_is_named(one: str, moved: bool, named: bool) -> None:
    for choice in (EITHER.format(one=one, other=MADE), EITHER.format(one=MADE, other=one)):
        converted = convert_source(Source.from_text(SCRIPT.format(choice=choice)))
        text = converted.new_text
        assert text is not None
        assert ("x.to(device)" in text) is moved
        causes = [one.message for one in validate(text, None, KNOWLEDGE).of(Status.NAMED)]
        assert [("every process goes through all of" in one) for one in causes] == [True] * named
