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
N, batch_size, seq_len = 64, 8, 8
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


CUTS = {
    "slices over a range": """\
for i in range(0, N, batch_size):
    x, y = X[i : i + batch_size], Y[i : i + batch_size]
""",
    "two statements": """\
for i in range(0, len(X), 8):
    x = X[i : i + 8]
    y = Y[i : i + 8]
""",
    "bounds on lines of their own": """\
for j in range(N // batch_size):
    start = j * batch_size
    end = start + batch_size
    x = X[start:end].float()
    y = Y[start:end]
""",
    "a permutation": """\
order = torch.randperm(N)
for i in range(0, N, batch_size):
    index = order[i : i + batch_size]
    x, y = X[index], Y[index]
""",
    "drawn indices": """\
for step in range(20):
    index = np.random.randint(0, N, 8)
    x = torch.tensor(X[index])
    y = Y[index]
""",
}


@pytest.mark.parametrize("kind", CUTS)
def test_shared_out(kind: str) -> None:
    text = converted(CUTS[kind] + TRAIN)
    assert "x, y = accelerator.shard_batch(x, y)\n" in text
    assert "ACC402" not in text


def test_a_total_covers_all_shares() -> None:
    body = "total = 0.0\n" + CUTS["two statements"] + TRAIN + "    total += loss.item()\nprint(total)\n"
    assert 'total = accelerator.reduce(total, reduction="mean")' in converted(body)


def test_a_sum_over_the_configured_size_is_a_share_of_a_sum() -> None:
    summed = TRAIN.replace(
        "F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y, reduction='sum') / batch_size"
    )
    assert "shard_batch" not in converted(CUTS["two statements"] + summed)
    by_number = TRAIN.replace("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y, reduction='sum')")
    assert 'accelerator.backward(loss, reduction="sum")' in converted(CUTS["two statements"] + by_number)


WHOLE = {
    "one array": CUTS["two statements"].replace("y = Y[i : i + 8]", "y = Y[:8]") + TRAIN,
    "steps through time": CUTS["slices over a range"].replace("batch_size", "seq_len") + TRAIN,
    "a state that is carried": CUTS["two statements"] + TRAIN.replace("model(x)", "model(x, state)"),
    "a shape with the batch's size": CUTS["two statements"]
    + TRAIN.replace("model(x)", "model(x).view(batch_size, -1)"),
    "noise of a fixed size": CUTS["two statements"]
    + TRAIN.replace("model(x)", "model(x) + torch.randn(8, 2)"),
    "samples compared": CUTS["two statements"] + TRAIN.replace("model(x)", "x @ model(x).t()"),
    "a loss of unknown kind": CUTS["two statements"]
    + TRAIN.replace("F.cross_entropy(model(x), y)", "own(model(x), y)"),
    "columns": CUTS["two statements"].replace("X[i : i + 8]", "X[:, i : i + 8]") + TRAIN,
}


@pytest.mark.parametrize("kind", WHOLE)
def test_left_whole(kind: str) -> None:
    body = "own = lambda a, b: a[b]\nstate = torch.zeros(8, 4)\n" + WHOLE[kind]
    text = converted(body)
    assert "shard_batch" not in text
    assert "accelerator.backward(loss" in text


def test_layers_that_take_time_first() -> None:
    body = CUTS["two statements"] + TRAIN
    model = "nn.Sequential(nn.LSTM(4, 2))"
    assert "shard_batch" not in converted(body, model)
    assert "shard_batch" in converted(body, "nn.Sequential(nn.LSTM(4, 2, batch_first=True))")
