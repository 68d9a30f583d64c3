"""Figures of converted scripts: printed by two processes as by one."""

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_source
from accelify.source import Source
from tests.distributed.processes import run_ranks
from tests.transforms.support import PATH

SCRIPT = """\
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.sum, self.count, self.avg = 0, 0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
curve, figures = [], []
for epoch in range(2):
    total, count, smooth, meter, stats = 0.0, 0, 0.0, Meter(), {"loss": 0.0, "all": []}
    predicted, wanted = [], []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(0)
        count += x.size(0)
        smooth = 0.9 * smooth + 0.1 * loss.item()
        meter.update(loss.item(), x.size(0))
        stats["loss"] += loss.item()
        stats["all"].append(loss.item())
        curve.append(loss.item())
        predicted.append(output.argmax(1).cpu().numpy())
        wanted.extend(y.tolist())
    hits = (np.concatenate(predicted) == np.array(wanted)).mean()
    figures += [total / count, smooth, meter.avg, stats["loss"] / len(loader), np.median(stats["all"]), float(hits)]
figures += curve
"""


def figures_of(text):
    namespace = {}
    exec(compile(text, "script.py", "exec"), namespace)
    return namespace["figures"]


@pytest.mark.distributed
def test_two_processes_report_what_one_does():
    conversion = convert_source(Source.from_text(SCRIPT, PATH), ConvertOptions("total"))
    assert conversion.status == "converted"
    assert not {"ACC302", "ACC304"} & {f.code for f in conversion.remaining}
    expected = figures_of(SCRIPT)
    assert figures_of(conversion.new_text) == expected
    for own in run_ranks(2, figures_of, conversion.new_text, env={"ACCELIFY_USE_CPU": "true"}):
        assert own == pytest.approx(expected, rel=1e-5)


# With a learning rate of nothing, figures of an epoch are the same whatever the order and the size of the batches.
COUNTS = """\
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def counts(output, y):
    return (output.argmax(1) == y).sum().item(), y.size(0)


def step(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def evaluate(batches):
    hits = seen = rounds = 0
    with torch.no_grad():
        for x, y in batches:
            n, width = x.shape
            output = model(x)
            hits += (output.argmax(1) == y).sum().item()
            seen += 8
            rounds += n * width
    return hits / seen, hits / (len(batches) * 8), rounds


torch.manual_seed(5)
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader, held_out = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
figures = []
for epoch in range(2):
    hits = seen = found = size = right = mean = total = 0
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += np.sum(output.argmax(1).cpu().numpy() == y.cpu().numpy())
        seen += 8
        h, n = counts(output, y)
        found += h
        size += n
        right += (output.argmax(1) == y).sum().item()
        mean = (mean * i + loss.item()) / (i + 1)
    for x, y in loader:
        total += step(x.to(device), y.to(device))
    figures += [hits / seen, found / size, right / ((i + 1) * 8), mean, total / len(loader)]
    figures += evaluate(held_out)
"""


@pytest.mark.distributed
def test_counts_of_batches_and_functions():
    conversion = convert_source(Source.from_text(COUNTS, PATH), ConvertOptions())
    assert conversion.status == "converted"
    assert not {"ACC301", "ACC302", "ACC304"} & {f.code for f in conversion.remaining}
    expected = figures_of(COUNTS)
    for own in run_ranks(2, figures_of, conversion.new_text, env={"ACCELIFY_USE_CPU": "true"}):
        assert own == pytest.approx(expected, rel=1e-5)
