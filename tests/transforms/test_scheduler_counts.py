"""Prepared schedulers that are told a count of steps: named, as they then go by one process's own batches."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed, convert

LAMBDA = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 - n / 48)\n"
COUNTED = LAMBDA + "step = 0\n"
TODO = (
    "# TODO(accelify ACC407): count the batches of all processes; where no run is resumed, the number can be left out "
    "instead\n"
)


def _said(batch_size: str = "per-process", **snippets: str) -> list[str]:
    return [f.message for f in convert(batch_size, **snippets).remaining if f.code == "ACC407"]


def test_a_count_of_batches_is_named() -> None:
    check_transformed(
        "update",
        "optimizer.step()\nscheduler.step(step)\nstep += 1",
        f"optimizer.step()\n{TODO}scheduler.step(step)\nstep += 1",
        ready=COUNTED.strip("\n").replace("step = 0", ""),
        setup="step = 0",
    )


@pytest.mark.parametrize(
    "number",
    ["step", "epoch=step", "step + 1", "i", "epoch * 8 + i", "epoch * len(loader) + i", "place(step)"],
)
def test_counts_of_several_spellings(number: str) -> None:
    helper = "def place(count):\n    return count // 2"
    update = f"optimizer.step()\nscheduler.step({number})\nstep += 1"
    (message,) = _said(setup=helper, ready=COUNTED, update=update)
    assert "stays behind" in message


@pytest.mark.parametrize(
    "number", ["", "epoch", "epoch + i / len(loader)", "done", "float(epoch)", "sum(seen)"]
)
def test_epochs_and_shares_of_them_are_silent(number: str) -> None:
    update = f"seen = [epoch]\ndone = epoch + i / len(loader)\noptimizer.step()\nscheduler.step({number})\nstep += 1"
    assert not _said(ready=COUNTED, update=update)


def test_a_figure_is_no_count() -> None:
    plateau = "step, scheduler = 0, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
    update = "step += 1\noptimizer.step()\nscheduler.step(loss.item() / step)"
    assert not _said(ready=plateau, update=update)


def test_as_many_steps_as_before_are_silent() -> None:
    update = "optimizer.step()\nscheduler.step(step)\nstep += 1"
    assert not _said("total", ready=COUNTED, update=update)
    assert not _said(ready=COUNTED, update=f"{update}\nif step >= 20:\n    break")


def test_a_schedule_of_one_processes_own_steps_is_silent() -> None:
    """It is made of the length that the prepared loader has, and left as it is."""
    ready = "step = 0\n"
    setup = """
    def train(model, optimizer, loader):
        count = 0
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * len(loader))
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step(count)
            count += 1
    """
    end = "train(model, optimizer, loader)"
    assert not _said(setup=setup, ready=ready, end=end)


TRAINER = """
class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader, self.count, self.epoch = model, loader, 0, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)

    def run(self):
        for self.epoch in range(3):
            for x, y in self.loader:
                self.update(x, y)

    def update(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.count += 1
        self.scheduler.step({number})
"""


@pytest.mark.parametrize(("number", "named"), [("self.count", 1), ("self.epoch", 0), ("", 0)])
def test_trainers(number: str, named: int) -> None:
    end = "Trainer(nn.Linear(4, 2), DataLoader(data, batch_size=8)).run()"
    assert len(_said(setup=TRAINER.format(number=number), end=end)) == named


RESUMED = """
step, epochs = -1, 0
if os.path.exists("model.pt"):
    state = torch.load("model.pt")
    step, epochs = state["step"], state["epoch"]
def schedule(optimizer, at=-1):
    return torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=at)
"""


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=step)", 1),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=step - 1)", 1),
        ("schedule(optimizer, step)", 1),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=-1)", 0),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=epochs - 1)", 0),
        ("schedule(optimizer)", 0),
    ],
)
def test_a_schedule_that_begins_at_a_count_of_steps(made: str, named: int) -> None:
    ready, update = f"{RESUMED}scheduler = {made}", "step += 1\noptimizer.step()\nscheduler.step()"
    said = _said(ready=ready, update=update)
    assert len(said) == named
    assert all("throw it back" in message for message in said)
    assert not _said("total", ready=ready, update=update)
    # Once an epoch it is left as it is.
    assert not _said(ready=ready, update="optimizer.step()\nstep += 1", epoch="scheduler.step()")


CYCLE = """class Cycle:
    def __init__(self, optimizer, total):
        self.optimizer, self.total = optimizer, total
    def state_dict(self):
        return {}
    def step(self, n):
        for group in self.optimizer.param_groups:
            group["lr"] = 1 - n / self.total
step = 0
"""


@pytest.mark.parametrize("total", ["100", "3 * len(data) // 8"])
def test_a_scheduler_of_the_script_s_own_is_named_once(total: str) -> None:
    ready = f"scheduler = Cycle(optimizer, {total})\n"
    update = "optimizer.step()\nscheduler.step(step)\nstep += 1"
    (only,) = _said(setup=CYCLE, ready=ready, update=update)
    assert only.startswith("`scheduler` is no scheduler of torch")


@pytest.mark.parametrize("total", ["3 * len(loader)", "total"])
def test_a_scheduler_of_the_script_s_own_that_is_told_its_own_steps(total: str) -> None:
    ready = f"epochs = 3\ntotal = epochs * len(loader)\nscheduler = Cycle(optimizer, total={total})\n"
    update = "optimizer.step()\nscheduler.step(step)\nstep += 1"
    assert not _said(setup=CYCLE, ready=ready, update=update)
