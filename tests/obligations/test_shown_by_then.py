"""What is printed or saved is what it was by then: what the script does to it afterwards changes nothing of that."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
TEXT = """\
import json
import matplotlib.pyplot as plt
import torch
from collections import defaultdict
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(4, 1), DataLoader(torch.load("d"), batch_size=8))
for epoch in range(4):
    total, by_label, means = 0.0, defaultdict(float), defaultdict(list)
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        total += loss.item()
        by_label[y[0].item()] += loss.item()
    {before}
    if accelerator.is_main_process:
        {shown}
    {after}
"""
SAVED = "plt.savefig('a.png')"
WAYS = {
    "a picture that is closed": ("plt.plot([total])", SAVED, "plt.close()"),
    "a picture of its own": ("picture = plt.figure(); plt.plot(total)", SAVED, "plt.close(picture)"),
    "a loop over a dictionary": ("for k, v in by_label.items(): plt.plot([v], label=k)", SAVED, "plt.clf()"),
    "a list in a dictionary": ("means[0].append(total)", "print(means)", "means = {}"),
    "a dictionary that is emptied": ("found = {'loss': total}", "print(found)", "found.clear()"),
    "a slot that is written again": ("found = {'loss': total}", "print(found)", "found['loss'] = 0"),
    "a list that is emptied": ("found = [total]", "json.dump(found, open('a', 'w'))", "found.clear()"),
    "a list within a list": ("found = [[total]]", "print(found)", "found[0].clear()"),
}
OF_ALL = "total = accelerator.reduce(torch.tensor(total), reduction='sum').item(); by_label = {0: total}"


def named(before: str, shown: str, after: str) -> bool:
    found = validate(TEXT.format(before=before, shown=shown, after=after), None, KNOWLEDGE).of(Status.NAMED)
    return any(one.demand == "content" for one in found)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_becomes_of_it_later(way: tuple[str, str, str]) -> None:
    before, shown, after = way
    assert named(before, shown, after)
    if not before.startswith("for"):
        assert not named(f"{OF_ALL}; {before}", shown, after)


def test_what_it_is_not_yet() -> None:
    assert not named("found = {'loss': 0}", "print(found)", "found['loss'] = total; found = None")
    assert not named("plt.close()", SAVED, "plt.plot([total]); plt.close()")
