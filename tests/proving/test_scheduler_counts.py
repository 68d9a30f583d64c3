"""Prepared schedulers that are told a count of steps: named, as they then go by one process's own batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.proving import prove
from tests.proving.several_programs import named
from tests.transforms.support import convert

LAMBDA = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 - n / 48)\n"
COUNTED = LAMBDA + "step = 0\n"


def _said(batch_size: str = "per-process", **snippets: str) -> list[str]:
    found = convert(batch_size, **snippets)
    prove([found], found)
    return [f.message for f in found.remaining if f.code == "ACC706" and f.message.startswith("the schedule")]


@pytest.mark.parametrize(
    "number",
    ["step", "epoch=step", "step + 1", "i", "epoch * 8 + i", "epoch * len(loader) + i", "place(step)"],
)
def test_counts_of_several_spellings(number: str) -> None:
    helper = "def place(count):\n    return count // 2"
    update = f"optimizer.step()\nscheduler.step({number})\nstep += 1"
    (message,) = _said(setup=helper, ready=COUNTED, update=update)
    assert "counts the rounds of each process" in message


@pytest.mark.parametrize(
    "number", ["", "epoch", "epoch + i / len(loader)", "done", "float(epoch)", "sum(seen)"]
)
def test_epochs_and_shares_of_them_are_silent(number: str) -> None:
    update = f"seen = [epoch]\ndone = epoch + i / len(loader)\noptimizer.step()\nscheduler.step({number})\nstep += 1"
    assert not _said(ready=COUNTED, update=update)


def test_as_many_steps_as_before_are_silent() -> None:
    update = "optimizer.step()\nscheduler.step(step)\nstep += 1"
    assert not _said("total", ready=COUNTED, update=update)
    assert not _said(ready=COUNTED, update=f"{update}\nif step >= 20:\n    break")


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


OF_STEPS = """
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
accelerator = Accelerator()
model, opt, loader = accelerator.prepare(model, opt, loader)
warm = {warm}


def ramp(step):
    return float(step + 1) / warm if step < warm else 1.0


scheduler = torch.optim.lr_scheduler.LambdaLR(opt, ramp)
for epoch in range(4):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        scheduler.step()
"""


@pytest.mark.parametrize(("warm", "is_right"), [("2 * len(loader)", True), ("30", False)])
def test_function_of_the_steps_that_are_done(warm: str, is_right: bool, tmp_path: Path) -> None:
    """One that counts in the rounds of each process goes by them, as the scheduler that is not prepared does."""
    found = named(OF_STEPS.format(warm=warm), tmp_path, "accelerate")
    assert found == ([] if is_right else [("ACC706", "scheduler.step()")])


OF_A_PASS = """
dist.init_process_group("gloo")
size, world = 4, dist.get_world_size()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size={size}, sampler=sampler)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
total = {total}
scheduler = torch.optim.lr_scheduler.{made}
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
        {in_batch}
    {in_epoch}
"""
CYCLE = "OneCycleLR(opt, max_lr=0.1, total_steps=total)"
DECAY = "LambdaLR(opt, lambda step: 1 - step / total)"


@pytest.mark.parametrize("made", [CYCLE, DECAY, "CosineAnnealingLR(opt, T_max=total)"])
@pytest.mark.parametrize(
    ("total", "size", "place", "is_right"),
    [
        ("3 * len(data) // size", "size", "in_batch", False),
        ("3 * (len(data) // size)", "size", "in_batch", False),
        ("math.ceil(len(data) / size) * 3", "size", "in_batch", False),
        ("len(DataLoader(data, batch_size=size)) * 3", "size", "in_batch", False),
        ("3 * len(loader)", "size", "in_batch", True),
        ("3 * (len(data) // (size * world))", "size", "in_batch", True),
        ("3 * math.ceil(len(data) / size / world)", "size", "in_batch", True),
        ("3 * (len(data) // size)", "size // world", "in_batch", True),
        ("3 * (len(data) // size)", "size", "in_epoch", True),
        ("1000", "size", "in_batch", True),
    ],
)
def test_a_schedule_as_long_as_the_batches_of_all(made, total, size, place, is_right, tmp_path) -> None:
    steps = {"in_batch": "pass", "in_epoch": "pass", place: "scheduler.step()"}
    text = "import math\n" + OF_A_PASS.format(made=made, total=total, size=size, **steps)
    assert named(text, tmp_path) == ([] if is_right else [("ACC706", "scheduler.step()")])


PREPARED = """
import math
from transformers import get_linear_schedule_with_warmup
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
scheduler = get_linear_schedule_with_warmup(opt, num_warmup_steps=0, num_training_steps={total})
{prepared} = accelerator.prepare({prepared})
for epoch in range(3):
    for x, y in loader:
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        scheduler.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("total", "prepared", "is_right"),
    [
        ("48 * accelerator.num_processes", "model, opt, loader", False),
        ("math.ceil(len(loader) / accelerator.num_processes) * 3", "model, opt, loader, scheduler", False),
        ("48 * accelerator.num_processes", "model, opt, loader, scheduler", True),
        ("math.ceil(len(loader) / accelerator.num_processes) * 3", "model, opt, loader", True),
        ("math.ceil(len(loader) / 2) * 3", "model, opt, loader, scheduler", True),
        (
            "3 * math.ceil(len(loader) / accelerator.num_processes) * accelerator.num_processes",
            "model, opt, loader, scheduler",
            True,
        ),
    ],
)
def test_lengths_beside_an_accelerator(total, prepared, is_right, tmp_path) -> None:
    found = named(PREPARED.format(total=total, prepared=prepared), tmp_path, "accelerate")
    assert found == ([] if is_right else [("ACC706", "scheduler.step()")])


STOP = """\
        opt.zero_grad()
        step += 1
        if step >= total:
            break
"""


@pytest.mark.parametrize(
    ("total", "length", "is_right"),
    [
        ("int(os.environ['STEPS'])", "total", False),
        ("int(os.environ['STEPS'])", "total * accelerator.num_processes", True),
        ("3 * len(loader)", "total", True),  # the loops end by their epochs
    ],
)
def test_as_long_as_the_steps_that_end_the_training(total, length, is_right, tmp_path) -> None:
    text = PREPARED.replace("        opt.zero_grad()\n", STOP)
    text = text.replace("scheduler =", f"step, total = 0, 1\ntotal = {total}\nscheduler =")
    found = named(
        "import os\n" + text.format(total=length, prepared="model, opt, loader, scheduler"),
        tmp_path,
        "accelerate",
    )
    assert found == ([] if is_right else [("ACC706", "scheduler.step()")])


OF_A_HELPER = """
def decay(opt, num_warmup_steps, num_training_steps):
    def factor(step):
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(opt, factor)


KINDS = {{"decay": decay}}
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
total = {total}
scheduler = KINDS["decay"](opt, num_warmup_steps={warm}, num_training_steps=total)
{prepares}
for epoch in range(4):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        scheduler.step()
"""
ITS_PREPARE = "scheduler = accelerator.prepare(scheduler)"


@pytest.mark.parametrize("warm", ["10", "0", "total // 10"])
@pytest.mark.parametrize(
    ("total", "prepares", "is_right"),
    [
        ("4 * len(loader)", ITS_PREPARE, False),
        ("4 * len(loader)", "", True),
        ("4 * len(loader) * accelerator.num_processes", ITS_PREPARE, True),
        ("64", ITS_PREPARE, True),
        ("64", "", False),
    ],
)
def test_a_warm_up_before_a_length_that_a_function_reads(warm, total, prepares, is_right, tmp_path) -> None:
    found = named(OF_A_HELPER.format(warm=warm, total=total, prepares=prepares), tmp_path, "accelerate")
    if warm == "10" and "num_processes" in total:
        return  # the warm-up of those steps is that of one process, which is named by itself
    assert found == ([] if is_right else [("ACC706", "scheduler.step()")])


BY_EPOCHS = """
accelerator = Accelerator()
EPOCHS = 3
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.{made}
model, opt, loader, schedule = accelerator.prepare(model, opt, loader, schedule)
{loop}:
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        schedule.step()
    epoch = epoch + 1
"""


@pytest.mark.parametrize("loop", ["for epoch in range(EPOCHS)", "epoch = 0\nwhile epoch < EPOCHS"])
@pytest.mark.parametrize(
    "made",
    [
        "OneCycleLR(opt, 0.1, epochs=EPOCHS, steps_per_epoch=len(loader))",
        "OneCycleLR(opt, max_lr=[0.1], steps_per_epoch=len(loader), epochs=EPOCHS)",
        "OneCycleLR(opt, 0.1, total_steps=EPOCHS * len(loader))",
    ],
)
def test_a_number_of_epochs_is_none_of_steps(made: str, loop: str, tmp_path: Path) -> None:
    found = named(BY_EPOCHS.format(made=made, loop=loop), tmp_path, "accelerate")
    assert [code for code, _ in found if code == "ACC706"] == []
