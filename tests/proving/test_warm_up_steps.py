"""Schedules that `prepare` lets go a step for every process: their lengths and warm-ups have to be in those steps."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

HEAD = """
import argparse
from transformers import get_scheduler

parser = argparse.ArgumentParser()
parser.add_argument("--warm_up", type=int, default=100)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
accelerator = Accelerator()
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, loader)
total = args.epochs * len(loader)
"""
LOOP = """
done = 0
for epoch in range(args.epochs):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
        schedule.step()
        done += 1
        if done >= args.steps:
            break
"""
PREPARED = "schedule = accelerator.prepare(schedule)\n"
OF_LIBRARY = 'schedule = get_scheduler("linear", opt, num_warmup_steps={}, num_training_steps={})\n'
BY_RATE = "schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: {})\n"
FUNCTION = """
def warm_up(opt, warm, total):
    def rate(step):
        if step < warm:
            return step / warm
        return max(0.0, (total - step) / (total - warm))

    return torch.optim.lr_scheduler.LambdaLR(opt, rate)


schedule = warm_up(opt, {0} // 10, {0})
"""
CLASS = """
class WarmUp({base}):
    def __init__(self, opt, warm):
        self.opt, self.warm, self.done = opt, warm, 0
        {begin}

    {body}


schedule = WarmUp(opt, len(loader))
"""
DERIVED = CLASS.format(
    base="torch.optim.lr_scheduler.LRScheduler",
    begin="super().__init__(opt)",
    body="def get_lr(self):\n        return [one * self.last_epoch / self.warm for one in self.base_lrs]",
)
BY_ITSELF = CLASS.format(
    base="",
    begin="",
    body="""def step(self):
        self.done += 1
        for group in self.opt.param_groups:
            group["lr"] = 0.1 * min(1, self.done / self.warm)""",
)


def counted(text, tmp_path):
    return [
        one.message for one in findings(HEAD + text + LOOP, tmp_path, "accelerate") if one.code == "ACC706"
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        OF_LIBRARY.format("total // 10", "total"),
        OF_LIBRARY.format("args.warm_up", "args.steps"),
        OF_LIBRARY.format("total // 10", "args.steps * accelerator.num_processes"),
        BY_RATE.format("min(1.0, step / int(0.1 * total))"),
        BY_RATE.format("1 - step / args.steps"),
        BY_RATE.format("1 - max(0, step - args.warm_up) / (args.steps - args.warm_up)"),
        "def rate(step):\n    return 1 - step / args.steps\n\n" + BY_RATE.replace("lambda step: {}", "rate"),
        FUNCTION.format("total"),
        DERIVED,
    ],
)
def test_lengths_in_steps_of_one_process(schedule, tmp_path):
    (message,) = counted(schedule + PREPARED, tmp_path)
    assert "its length is in batches of one" in message


def test_a_warm_up_in_steps_of_one_process(tmp_path):
    schedule = OF_LIBRARY.format("args.warm_up", "args.steps * accelerator.num_processes")
    (message,) = counted(schedule + PREPARED, tmp_path)
    assert "its warm-up is in steps of one" in message


@pytest.mark.parametrize(
    "schedule",
    [
        OF_LIBRARY.format(
            "args.warm_up * accelerator.num_processes", "args.steps * accelerator.num_processes"
        ),
        OF_LIBRARY.format("0", "args.steps * accelerator.num_processes"),
        BY_RATE.format("1 - step / (args.steps * accelerator.num_processes)"),
        BY_RATE.format("1 - step // args.warm_up"),
        FUNCTION.format("(total * accelerator.num_processes)"),
    ],
)
def test_lengths_in_steps_of_all_processes(schedule, tmp_path):
    assert not counted(schedule + PREPARED, tmp_path)


@pytest.mark.parametrize("schedule", [DERIVED, BY_ITSELF, OF_LIBRARY.format("total // 10", "total")])
def test_lengths_in_steps_of_one_process_where_nothing_prepares_the_schedule(schedule, tmp_path):
    assert not counted(schedule, tmp_path)


ENDED = LOOP.replace("args.steps", "most")


@pytest.mark.parametrize(
    ("length", "codes"),
    [
        ("batches = len(DataLoader(data, batch_size=4))\nmost = args.epochs * batches\n", []),
        ("most = args.steps\n", ["ACC706"]),
    ],
)
def test_a_length_by_the_batches_before_prepare(length, codes, tmp_path):
    """It is that of all processes, however many names it goes through."""
    text = HEAD + length + OF_LIBRARY.format("0", "most") + PREPARED + ENDED
    found = findings(text, tmp_path, "accelerate")
    assert [one.code for one in found if one.code == "ACC706"] == codes
