"""Weights that are kept because of a figure."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

SCRIPT = """
def fit():
    best, best_loss = None, 1e9
    for epoch in range(3):
        for phase in ["train", "val"]:
            total = 0.0
            kept = defaultdict(float)
            for x, y in loader:
                optimizer.zero_grad()
                loss = measure(model(x), y, kept)
                loss.backward()
                optimizer.step()
                total += loss.item() * x.size(0)
            figure = {figure}
            if phase == "val" and figure < best_loss:
                best_loss = figure
                best = {best}
    {last}
"""
MEASURE = """
def measure(output, target, kept):
    loss = F.mse_loss(output, target)
    kept["loss"] += loss.item()
    return loss
"""
LOCAL, REDUCED = 'kept["loss"] / 3', "total / len(loader.dataset)"
COPY, LOAD = "copy.deepcopy(model.state_dict())", "model.load_state_dict(best)"


@pytest.mark.parametrize(
    ("figure", "best", "last", "found"),
    [
        (LOCAL, COPY, LOAD, True),
        (LOCAL, "model.state_dict()", LOAD, True),
        (REDUCED, COPY, LOAD, False),
        (LOCAL, COPY, "print(best)", False),
        (LOCAL, "epoch", LOAD, False),
    ],
)
def test_weights_that_are_loaded_again(figure: str, best: str, last: str, found: bool) -> None:
    conversion = convert(
        imports="import copy\nfrom collections import defaultdict",
        setup=MEASURE,
        ready=SCRIPT.format(figure=figure, best=best, last=last),
        end="fit()",
    )
    assert conversion.status == "converted", conversion.reason
    assert ("ACC411" in codes(conversion)) == found
