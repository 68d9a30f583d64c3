"""Losses that are put into one tensor before they are added up: each is what it was, and no sum over a batch."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert, place_of

PARTS = "near, far = F.cross_entropy(model(x), y), F.l1_loss(model(x)[:, 0], y.float())\n"
SUMMED = 'near, far = F.cross_entropy(model(x), y, reduction="sum"), F.mse_loss(model(x)[:, 0], y, reduction="sum")\n'


@pytest.mark.parametrize(
    "added",
    [
        "loss = torch.stack([near, far]).sum()",
        "loss = torch.sum(torch.stack([near, far]))",
        "loss = torch.cat([near.view(1), far.view(1)]).sum()",
        'parts = {"near": near, "far": far}\nloss = torch.stack(list(parts.values())).sum()',
        'parts = {}\nparts["near"] = near\nloss = torch.stack(list(parts.values())).sum()',
        "parts = [near, far]\nloss = torch.stack(parts).mean()",
    ],
)
def test_means_that_are_added_up(added: str) -> None:
    assert place_of(convert(loss=PARTS + added).new_text, "backward") == "accelerator.backward(loss)"


@pytest.mark.parametrize(
    "summed",
    [
        SUMMED + "loss = torch.stack([near, far]).sum()",
        "loss = torch.stack([r.pow(2) for r in model(x)]).sum()",
    ],
)
def test_sums_over_the_batch(summed: str) -> None:
    assert (
        place_of(convert(loss=summed).new_text, "backward") == 'accelerator.backward(loss, reduction="sum")'
    )
