"""Parts of a loss that come with a count of steps: named, as an epoch has fewer steps on several processes."""

from __future__ import annotations

import textwrap

import pytest

from tests.transforms.support import convert

LOSS = "fit, extra = F.cross_entropy(model(x), y), model.weight.pow(2).sum()\n"
HELPER = """
def weight_at(step, full=500):
    return min(1.0, step / full)

def total_of(fit, extra, share):
    return fit + share * extra
"""
BY_STEPS = {
    "a factor": ("", LOSS + "beta = min(1.0, step / 1000)\nloss = fit + beta * extra"),
    "written out": ("", LOSS + "loss = fit + 0.1 * min(1, step / 1000) * extra"),
    "of a helper": (HELPER, LOSS + "loss = fit + weight_at(step) * extra"),
    "in a helper": (HELPER, LOSS + "loss = total_of(fit, extra, weight_at(step))"),
    "added up": ("", LOSS + "loss = fit\nloss += 0.99 ** step * extra"),
    "scaled": ("", LOSS + "loss = fit + extra\nloss *= min(1, step / 50)"),
    "from a step on": ("", LOSS + "loss = fit\nif step > 100:\n    loss = loss + extra"),
    "chosen": ("", LOSS + "loss = fit + extra if step > 100 else fit"),
    "a distance": ("", LOSS + "goal = min(25, step / 40)\nloss = fit + 9 * (extra - goal).abs()"),
    "a distance by torch": ("", LOSS + "loss = fit + torch.abs(extra - min(25, step / 40)).mean()"),
    "a square": ("", LOSS + "loss = fit + (extra - min(25, step / 40)) ** 2"),
    "a power": ("", LOSS + "loss = fit + extra ** min(2, step / 40)"),
    "a bound": ("", LOSS + "floor = min(25, step / 40)\nloss = fit + torch.clamp(extra, min=floor)"),
    "a factor of what is averaged": ("", LOSS + "loss = (fit + min(1, step / 40) * extra).mean()"),
}
SILENT = {
    "a constant": ("", LOSS + "loss = fit + 0.5 * extra"),
    "an option": ("WEIGHT = 0.3", LOSS + "loss = fit + WEIGHT * extra"),
    "epochs": ("", LOSS + "loss = fit + min(1, epoch / 3) * extra"),
    "share of an epoch": ("", LOSS + "loss = fit + min(1, epoch + i / len(loader)) * extra"),
    "a rhythm": ("", LOSS + "loss = fit\nif step % 16 == 0:\n    loss = loss + 16 * extra"),
    "tensors": ("", LOSS + "loss = fit * extra"),
    "accumulation": ("", LOSS + "loss = fit / 4"),
    "a fixed distance": ("", LOSS + "loss = fit + (extra - 25).abs()"),
    "what has no gradient": ("", LOSS + "loss = fit + extra - step"),
    "a bound by epochs": ("", LOSS + "loss = fit + extra.clamp(min=min(25, epoch / 4))"),
}


def _said(batch_size="per-process", **snippets):
    ready, update = "step = 0\n", snippets.pop("update", "optimizer.step()\nstep += 1\n")
    found = convert(batch_size, ready=ready, update=update, **snippets)
    return [f for f in found.remaining if f.code == "ACC407"]


@pytest.mark.parametrize("case", BY_STEPS)
def test_parts_of_the_loss_by_steps_are_named(case):
    setup, loss = BY_STEPS[case]
    found = _said(setup=setup, loss=loss)
    assert len(found) == 1, found
    assert "`step`" in found[0].message
    assert not _said("total", setup=setup, loss=loss), "as many steps as before"


@pytest.mark.parametrize("case", SILENT)
def test_what_counts_no_steps_is_silent(case):
    setup, loss = SILENT[case]
    assert not _said(setup=setup, loss=loss)


def test_training_that_ends_after_steps_is_silent():
    """It makes as many steps as before on each process, and the loss follows them."""
    _, loss = BY_STEPS["a factor"]
    assert not _said(loss=loss, update="optimizer.step()\nstep += 1\nif step >= 1000:\n    break\n")


RAMP = "optimizer.step()\nscale = min(1.0, scale + 0.9 / {})\n"


@pytest.mark.parametrize(
    ("update", "named"),
    [
        (RAMP.format("round(len(loader.dataset) / 4)"), True),
        (RAMP.format("1000"), True),
        ("optimizer.step()\nscale = max(0.1, scale - 0.01)\n", True),
        (RAMP.format("(3 * len(loader))"), False),
        ("optimizer.step()\nscale = min(1.0, scale + float(loss))\n", False),
        ("optimizer.step()\nscale = min(1.0, scale)\n", False),
    ],
)
def test_a_warm_up_that_goes_on_at_each_step_is_named(update, named):
    found = _said(setup="scale = 0.1", loss=LOSS + "loss = fit + extra\nloss *= scale", update=update)
    assert [f.message[:40] for f in found] == ["`scale` in the loss goes on at each step"] * named, found


COUNTING = """
class Counting:
    def __init__(self):
        self.steps = 0

    def begin(self):
        self.steps += 1

class Annealed(Counting):
    def __call__(self, fit, extra):
        self.begin()
        share = min(1.0, self.steps / 500)
        return fit + share * extra
"""


def test_a_count_that_the_base_of_a_loss_keeps():
    found = _said(setup=COUNTING + "annealed = Annealed()", loss=LOSS + "loss = annealed(fit, extra)")
    assert [f.message[:30] for f in found] == ["`share` in the loss follows `s"], found


MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.beta, self.seen = 1.0, 0
    def forward(self, x):
        return self.fc(x) + self.beta * self.fc.weight.pow(2).sum()

def anneal(net, count, full=500):
    if full > 1:
        net.beta = min(1, count / full)
    else:
        net.beta = 1.0
"""
BUILD = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ("anneal(model, step)", True),
        ("model.beta = min(1, step / 500)", True),
        ("anneal(model, epoch)", False),
        ("model.beta = min(1, (epoch * len(loader) + i) / 500 / len(loader))", False),
        ("model.seen = step", False),  # the model makes nothing of it
        ("model.beta = 0.5", False),
    ],
)
def test_what_a_model_reckons_with_that_follows_the_steps(batch, said):
    found = _said(setup=MODEL, build=BUILD, batch=batch)
    assert len(found) == said
    assert all("is set in the model and follows `step`" in f.message for f in found)
    assert not _said("total", setup=MODEL, build=BUILD, batch=batch)


def test_rounds_that_end_by_the_length_of_the_loader_do_not_count_steps():
    """Each process makes 1/N of the steps of an epoch all the same: the weight lags."""
    loop = """
    total, step, share = len(loader) * 3, 0, 0.0
    share = 1 / (1 + share)
    while step < total:
        for x, y in loader:
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + min(1, step / 500) * model.weight.pow(2).sum()).backward()
            optimizer.step()
            step += 1
    """
    assert len(_said(end=textwrap.dedent(loop))) == 1
