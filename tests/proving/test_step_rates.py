"""Learning rates that a script sets itself: named where they follow a count of the rounds of each process."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import convert

WRAPPER = """
class ScheduledOptim:
    def __init__(self, optimizer, width, warmup):
        self._optimizer = optimizer
        self.n_steps = 0
        self.width, self.warmup = width, warmup

    def step_and_update_lr(self):
        self._update_learning_rate()
        self._optimizer.step()

    def zero_grad(self):
        self._optimizer.zero_grad()

    def _scale(self):
        return self.width ** -0.5 * min(self.n_steps ** -0.5, self.n_steps * self.warmup ** -1.5)

    def _update_learning_rate(self):
        self.n_steps += 1
        lr = 0.1 * self._scale()
        for group in self._optimizer.param_groups:
            group['lr'] = lr
"""
FUNCTION = """
def adjust(optimizer, step):
    lr = 0.1 * 0.5 ** (step // 1000)
    for group in optimizer.param_groups:
        group['lr'] = lr
"""
BRANCHES = """
def adjust(optimizer, step):
    if step < 100:
        lr = 0.01
    else:
        lr = 0.1
    optimizer.param_groups[0]['lr'] = lr
"""
DECAY = """
def decay(optimizer):
    for group in optimizer.param_groups:
        group['lr'] *= 0.999
"""
POLY = """
def adjust(optimizer, step, total):
    lr = 0.1 * (1 - step / total) ** 0.9
    for i, group in enumerate(optimizer.param_groups):
        group['lr'] = lr
"""
CLASS = """
class Poly:
    def __init__(self, per_epoch):
        self.total = 3 * per_epoch
        self.per_epoch = per_epoch

    def __call__(self, optimizer, i, epoch):
        done = epoch * self.per_epoch + i
        for group in optimizer.param_groups:
            group['lr'] = 0.1 * (1 - done / self.total)
"""
TOLD = """
def adjust(optimizer, step, told):
    if step in told:
        for group in optimizer.param_groups:
            group['lr'] = 0.1 ** told.index(step)
"""
STEP = "optimizer.step()\n"
COUNTED = "step = 0\n"

BY_STEPS = {
    "wrapper": (WRAPPER, "scheduled = ScheduledOptim(optimizer, 4, 10)", "scheduled.step_and_update_lr()"),
    "function": (FUNCTION, COUNTED, STEP + "step += 1\nadjust(optimizer, step)"),
    "written out": (FUNCTION, COUNTED, STEP + "step = step + 1\nadjust(optimizer, step=step)"),
    "branches": (BRANCHES, COUNTED, "step += 1\nadjust(optimizer, step)\n" + STEP),
    "index": (FUNCTION, "", "adjust(optimizer, i)\n" + STEP),
    "by a set number": (FUNCTION, "", "adjust(optimizer, epoch * 1000 + i)\n" + STEP),
    "sometimes": (DECAY, COUNTED, STEP + "step += 1\nif step % 100 == 0:\n    decay(optimizer)"),
    "factor": (DECAY, "", STEP + "decay(optimizer)"),
    "of a configured number": (POLY, COUNTED, STEP + "step += 1\nadjust(optimizer, step, 5000)"),
    "at told numbers": (TOLD, "told = [9, 19]", "adjust(optimizer, epoch * len(loader) + i, told)\n" + STEP),
    "in the loop": (
        "",
        COUNTED,
        "step += 1\nlr = 0.1 * min(1, step / 500)\nfor g in optimizer.param_groups:\n    g['lr'] = lr\n"
        + STEP,
    ),
}
SILENT = {
    "epochs": (FUNCTION, "", "adjust(optimizer, epoch)\n" + STEP),
    "share of an epoch": (FUNCTION, "", "adjust(optimizer, epoch + i / len(loader))\n" + STEP),
    "steps of all epochs": (POLY, "", "adjust(optimizer, epoch * len(loader) + i, 3 * len(loader))\n" + STEP),
    "at numbers of a length": (
        TOLD,
        "told = [n * len(loader) for n in (1, 2)]",
        "adjust(optimizer, epoch * len(loader) + i, told)\n" + STEP,
    ),
    "by a class": (CLASS, "poly = Poly(len(loader))", "poly(optimizer, i, epoch)\n" + STEP),
    "by the loss": (DECAY, "", STEP + "if epoch > 1:\n    decay(optimizer)"),
    "until a step": (
        FUNCTION,
        COUNTED,
        STEP + "step += 1\nadjust(optimizer, step)\nif step >= 20:\n    break",
    ),
    "other entries": (
        "",
        COUNTED,
        "step += 1\nfor g in optimizer.param_groups:\n    g['seen'] = step\n" + STEP,
    ),
}


def _said(batch_size="per-process", **snippets):
    found = convert(batch_size, **snippets)
    prove([found], found)
    return [f for f in found.remaining if f.code in ("ACC704", "ACC706") and "['lr']`" in f.message]


@pytest.mark.parametrize("case", SILENT)
def test_what_does_not_count_steps_is_silent(case):
    setup, ready, update = SILENT[case]
    assert not _said(setup=setup, ready=ready, update=update)


def test_once_an_epoch_is_silent():
    assert not _said(setup=FUNCTION, ready=COUNTED, epoch="step += 1\nadjust(optimizer, step)")
    assert not _said(setup=WRAPPER)


@pytest.mark.parametrize("case", BY_STEPS)
def test_rates_by_steps_are_named_once(case):
    setup, ready, update = BY_STEPS[case]
    found = _said(setup=setup, ready=ready, update=update)
    assert len(found) == 1, found
    assert not _said("total", setup=setup, ready=ready, update=update)


def test_a_wrapper_of_another_module(tmp_path: Path) -> None:
    (tmp_path / "optim.py").write_text(WRAPPER)
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "from optim import ScheduledOptim\n"
        "loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=2)\n"
        "model = nn.Linear(4, 2)\n"
        "optimizer = ScheduledOptim(torch.optim.Adam(model.parameters()), 4, 10)\n"
        "for x, y in loader:\n"
        "    optimizer.zero_grad()\n"
        "    nn.functional.mse_loss(model(x), y).backward()\n"
        "    optimizer.step_and_update_lr()\n"
    )
    conversions = convert_project(Source.read(script), ConvertOptions())
    prove(conversions, conversions[0])
    assert [f.code for c in conversions for f in c.remaining if f.code == "ACC706"] == ["ACC706"]


TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader, self.global_step = model, optimizer, loader, 0

    def rate(self):
        return 0.1 * 0.99 ** {count}

    def set_rate(self):
        for group in self.optimizer.param_groups:
            group['lr'] = self.rate()

    def run(self, epochs):
        for self.epoch in range(epochs):
            for x, y in self.loader:
                self.step(x, y)

    def step(self, x, y):
        self.set_rate()
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.global_step += 1
"""


@pytest.mark.parametrize(
    ("count", "named"),
    [("self.global_step", 1), ("self.epoch", 0), ("(self.global_step / len(self.loader))", 0)],
)
def test_trainers(count, named):
    end = "Trainer(model, optimizer, DataLoader(data, batch_size=8, shuffle=True)).run(2)"
    assert len(_said(setup=TRAINER.format(count=count), end=end)) == named


@pytest.mark.parametrize(("stride", "named"), [("1", 1), ("1.0 / len(loader)", 0)])
def test_a_count_that_grows_by_an_attribute(stride: str, named: int) -> None:
    setup = WRAPPER.replace("self.n_steps = 0", f"self.n_steps, self.stride = 0, {stride}")
    setup = setup.replace("self.n_steps += 1", "self.n_steps += self.stride")
    ready, update = "scheduled = ScheduledOptim(optimizer, 4, 10)", "scheduled.step_and_update_lr()"
    assert len(_said(setup=setup, ready=ready, update=update)) == named


def test_a_count_that_grows_by_a_name() -> None:
    update = STEP + "step += stride\nadjust(optimizer, step)"
    assert _said(setup=FUNCTION, ready=COUNTED + "stride = 1", update=update)
    assert not _said(setup=FUNCTION, ready=COUNTED + "stride = 1 / len(loader)", update=update)


@pytest.mark.parametrize(
    ("count", "by_samples"),
    [
        ("x.size(0)", True),
        ("len(x)", True),
        ("(y >= 0).sum()", True),
        ("(y >= 0).sum().item()", True),
        ("1", False),
    ],
)
def test_a_count_of_samples(count: str, by_samples: bool) -> None:
    (found,) = _said(setup=FUNCTION, ready=COUNTED, update=STEP + f"step += {count}\nadjust(optimizer, step)")
    assert ("gets another value on each rank" in found.message) is by_samples


OWN = """
class Decay:
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def step(self{more}):
        for group in self.optimizer.param_groups:
            {line}
"""


@pytest.mark.parametrize(
    ("more", "line", "call", "named"),
    [
        ("", "group['lr'] *= 0.9", "step()", True),
        ("", "group['lr'] = 0.1", "step()", False),
        (", epoch", "group['lr'] = 0.1 * 0.9**epoch", "step(max(0, epoch))", False),
        (", epoch", "group['lr'] = 0.1 * 0.9**epoch", "step(epoch + x.mean().item())", True),
        (", n", "group['lr'] = 1 - n / 100", "step(i)", True),
    ],
)
def test_a_scheduler_of_the_script(more: str, line: str, call: str, named: bool) -> None:
    setup = OWN.format(more=more, line=line)
    said = _said(setup=setup, ready="decay = Decay(optimizer)", update=f"{STEP}decay.{call}")
    assert len(said) == named
    assert not _said(setup=OWN.format(more="", line="group['lr'] *= 0.9"), ready="decay = Decay(optimizer)")


HELPERS = {
    "in another function": """
def write(optimizer, value):
    for group in optimizer.param_groups:
        group['lr'] = value
def set_rate(optimizer, n, rounds):
    far = n / rounds
    write(optimizer, 0.1 * (1 - far))
""",
    "by a class": """
class Cosine:
    def __init__(self, optimizer, rounds):
        self.optimizer, self.rounds = optimizer, rounds
    def step(self, n):
        far = n / self.rounds
        self.optimizer.param_groups[0]['lr'] = 0.1 * (1 - far)
def set_rate(optimizer, n, rounds):
    Cosine(optimizer, rounds).step(n)
""",
}


@pytest.mark.parametrize("helper", HELPERS)
@pytest.mark.parametrize(
    ("rounds", "named"), [("3 * (len(data) // 8)", True), ("3 * len(loader)", False), ("100", True)]
)
def test_a_rate_by_the_number_of_rounds(helper: str, rounds: str, named: bool) -> None:
    update = f"{STEP}n += 1\nset_rate(optimizer, n, rounds)"
    for first in ("0", "-1"):
        ready = f"n = {first}\nrounds = {rounds}\n"
        assert len(_said(setup=HELPERS[helper], ready=ready, update=update)) == named
    after = "set_rate(optimizer, n, rounds)"
    ready = f"n = 0\nrounds = {rounds}\n"
    assert len(_said(setup=HELPERS[helper], ready=ready, update=f"{STEP}n += 1", epoch=after)) == named


PHASES = """
class Phase:
    def __init__(self, total):
        self.n, self.total = 0, total
    def step(self):
        self.n += 1
        return self.n / self.total
class Cycle:
    def __init__(self, optimizer, total):
        self.optimizer, self.phase = optimizer, Phase(total)
    def step(self):
        rate = self.phase.step()
        for group in self.optimizer.param_groups:
            group['lr'] = rate
        if self.phase.n >= self.phase.total:
            self.phase.n = 0
"""


@pytest.mark.parametrize(("total", "named"), [("100", True), ("3 * len(loader)", False)])
def test_a_count_that_begins_anew(total: str, named: bool) -> None:
    ready = f"cycle = Cycle(optimizer, {total})"
    assert len(_said(setup=PHASES, ready=ready, update=f"{STEP}cycle.step()")) == named
