"""Which of several returned things is a figure of one process's share."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, names_figures

TRAIN = """
def largest(kept, value):
    return max(kept, value)

def train_epoch(batches):
    steps, kept = 0, 0
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        kept = measure(kept, loss.item())
        steps += 1
    return {returned}
"""
SAVE = "torch.save(model.state_dict(), 'a')"
IMPORTS = "from m import measure"


@pytest.mark.parametrize(
    ("returned", "epoch", "told"),
    [
        ("kept, steps", f"kept, steps = train_epoch(loader)\nif steps % 10 == 0:\n    {SAVE}", False),
        ("steps, kept", f"steps, kept = train_epoch(loader)\nif steps % 10 == 0:\n    {SAVE}", False),
        (
            "kept, optimizer",
            f"_, opt = train_epoch(loader)\nif opt.param_groups[0]['lr'] < 1:\n    {SAVE}",
            False,
        ),
        ("kept, steps", f"kept, steps = train_epoch(loader)\nif kept < 1:\n    {SAVE}", True),
        ("kept, steps", f"kept, *rest = train_epoch(loader)\nif kept < 1:\n    {SAVE}", True),
        ("kept, steps", f"found = train_epoch(loader)\nif found[0] < 1:\n    {SAVE}", True),
        ("(kept, steps), 1", f"found, n = train_epoch(loader)\nif found[0] < 1:\n    {SAVE}", True),
        ("dict(a=kept, b=steps)", f"found = train_epoch(loader)\nif found['a'] < 1:\n    {SAVE}", True),
        ("kept", f"kept, n = train_epoch(loader), 1\nif n < 1:\n    {SAVE}", False),
        ("kept", f"kept, n = train_epoch(loader), 1\nif kept < 1:\n    {SAVE}", True),
    ],
)
def test_of_several_returned_things_each_goes_to_its_name(returned: str, epoch: str, told: bool) -> None:
    conversion = convert(imports=IMPORTS, ready=TRAIN.format(returned=returned), epoch=epoch)
    assert names_figures(conversion) is told
