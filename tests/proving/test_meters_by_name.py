"""Meters in a dictionary that makes them by itself and gets others by name: each is put together over the processes."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

TEXT = """
from collections import defaultdict
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, value):
        self.count += 1
        self.total += value
    def synchronise(self):
        t = torch.tensor([self.count, self.total])
        dist.all_reduce(t)
        t = t.tolist()
        self.count, self.total = int(t[0]), t[1]
class Meters:
    def __init__(self):
        self.meters = defaultdict(Meter)
    def update(self, **values):
        for k, v in values.items():
            if isinstance(v, torch.Tensor):
                v = v.item()
            self.meters[k].update(v)
    def __getattr__(self, name):
        if name in self.meters:
            return self.meters[name]
        raise AttributeError(name)
    def add(self, name, meter):
        self.meters[name] = meter
    def synchronise(self):
        for {target}:
            meter.synchronise()
    def text(self):
        found = []
        for name, meter in self.meters.items():
            found.append("{{}}: {{:.4f}}".format(name, meter.total / meter.count))
        return " ".join(found)
dist.init_process_group("gloo")
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
meters = Meters()
meters.add("loss", Meter())
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    meters.update(loss=loss)
{together}
if dist.get_rank() == 0:
    print(meters.text())
"""


@pytest.mark.parametrize("target", ["meter in self.meters.values()", "_, meter in self.meters.items()"])
@pytest.mark.parametrize(
    ("together", "found"), [("meters.synchronise()", []), ("", [("ACC701", "print(meters.text())")])]
)
def test_meters_that_are_put_together_one_by_one(target, together, found, tmp_path):
    assert named(TEXT.format(target=target, together=together), tmp_path) == found


CALLED = """
from words import make

dist.init_process_group("gloo")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
made, names = make(), ["loss"]
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    {taken}
if dist.get_rank() == 0:
    print({shown})
"""


@pytest.mark.parametrize(
    ("taken", "shown", "is_right"),
    [
        ("words = made(x)", "made(names)", True),
        ("words = made(x)", "made()", False),
        ("words = made(x)", "made.compute()", False),
        ("made(names[0], loss)", "made(names)", False),
    ],
)
def test_an_object_that_is_called_for_what_it_gives(taken, shown, is_right, tmp_path):
    """A tokenizer gives what it makes of its words, a meter what it got before."""
    found = named(CALLED.format(taken=taken, shown=shown), tmp_path)
    assert found == ([] if is_right else [("ACC701", f"print({shown})")])
