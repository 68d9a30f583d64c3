"""Batches cut by hand: shared out where that is certain, left whole where it is not."""

import textwrap

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH

FRAME = """\
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

X, Y = torch.randn(64, 4), torch.randint(0, 2, (64,))
N, batch_size = 64, 8


def get_batch():
    index = torch.randint(0, N, (8,))
    return X[index], Y[index]


model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
{body}
"""
MODEL = "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))"
TRAIN = """\
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def converted(body: str, model: str = MODEL) -> str:
    text = FRAME.format(model=model, body=textwrap.indent(textwrap.dedent(body), "    "))
    compile(text, "before.py", "exec", dont_inherit=True)
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion.new_text


DRAWN = """\
for step in range(20):
    x, y = get_batch()
"""
SLICES = """\
for i in range(0, len(X), 8):
    x = X[i : i + 8]
    y = Y[i : i + 8]
"""


@pytest.mark.parametrize("more", ["", "    x = x.float()\n", "    x, y = torch.tensor(x), y.long()\n"])
def test_shared_out(more: str) -> None:
    text = converted(DRAWN + more + TRAIN)
    assert "x, y = accelerator.shard_batch(x, y)\n" in text
    assert "ACC402" not in text


def test_a_total_covers_all_shares() -> None:
    body = "total = 0.0\n" + DRAWN + TRAIN + "    total += loss.item()\nprint(total)\n"
    assert 'total = accelerator.reduce(total, reduction="mean")' in converted(body)


def test_a_sum_over_the_configured_size_is_a_share_of_a_sum() -> None:
    summed = TRAIN.replace(
        "F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y, reduction='sum') / batch_size"
    )
    assert "shard_batch" not in converted(DRAWN + summed)
    by_number = TRAIN.replace("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y, reduction='sum')")
    assert 'accelerator.backward(loss, reduction="sum")' in converted(DRAWN + by_number)


WHOLE = {
    "slices by the rounds of a loop": SLICES + TRAIN,
    "a state that is carried": DRAWN + TRAIN.replace("model(x)", "model(x, state)"),
    "a shape with the batch's size": DRAWN + TRAIN.replace("model(x)", "model(x).view(batch_size, -1)"),
    "noise of a fixed size": DRAWN + TRAIN.replace("model(x)", "model(x) + torch.randn(8, 2)"),
    "samples compared": DRAWN + TRAIN.replace("model(x)", "x @ model(x).t()"),
    "a loss of unknown kind": DRAWN + TRAIN.replace("F.cross_entropy(model(x), y)", "own(model(x), y)"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_left_whole(kind: str) -> None:
    body = "own = lambda a, b: a[b]\nstate = torch.zeros(8, 4)\n" + WHOLE[kind]
    text = converted(body)
    assert "shard_batch" not in text
    assert "accelerator.backward(loss" in text


def test_layers_that_take_time_first() -> None:
    body = DRAWN + TRAIN
    model = "nn.Sequential(nn.LSTM(4, 2))"
    assert "shard_batch" not in converted(body, model)
    assert "shard_batch" in converted(body, "nn.Sequential(nn.LSTM(4, 2, batch_first=True))")
