"""Figures of converted scripts: printed by two processes as by one."""

import pytest

from accelify.convert import ConvertOptions, convert_source
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
