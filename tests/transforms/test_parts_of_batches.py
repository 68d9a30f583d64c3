"""Lists that are parts of one batch: going through them is no loop over batches, whose metrics would be gathered."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

HELPER = """
def views_of(model, first, others):
    found = []
    for other in others:
        one = [1 / part for part in model(other)]
        found.append(one)
    return model(first), found
"""
BUILD = """
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOSS = """
first, found = views_of(model, x, views)
loss = F.cross_entropy(first, y) + sum(one[0].mean() for one in found)
"""


@pytest.mark.parametrize(
    "moved",
    [
        "views = [view.to(device) for view in y]",
        "views = [view.float() for view in [view.to(device) for view in y]]",
        "views = tuple(view.to(device) for number, view in enumerate(y))",
        "views = [y[k].to(device) for k in range(len(y))]",
        "views = list(map(lambda view: view.to(device), y))",
        "views = []\nfor view in y:\n    views.append(view.to(device))",
        "views = []\nfor k in range(len(y)):\n    views.append(y[k].to(device))",
    ],
)
def test_a_helper_of_the_training_that_goes_through_parts_of_a_batch(moved: str) -> None:
    conversion = convert(setup=f"device = 'cpu'\n{HELPER}", build=BUILD, batch=moved, loss=LOSS)
    assert "gather_for_metrics" not in conversion.new_text
    assert "ACC301" not in codes(conversion)


def test_batches_that_were_put_by_are_batches() -> None:
    """Whoever goes through them later evaluates on one process's share."""
    count = "    output = model(x)\n    right += (output.argmax(1) == y).sum().item()"
    end = f"kept = [pair for pair in test_loader]\nright = 0\nfor x, y in kept:\n{count}\nprint(right)"
    assert {"ACC301", "ACC303"} & codes(convert(end=end))
