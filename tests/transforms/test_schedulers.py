"""Learning rate schedules."""

from __future__ import annotations

import textwrap

from tests.transforms.support import check_noop, check_transformed, codes, convert

STEP = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)"
PLATEAU = "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
OWN = """
class Schedule:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        for group in self.optimizer.param_groups:
            group['lr'] *= 0.9

scheduler = Schedule(optimizer)
"""
BATCH = "optimizer.step()\nscheduler.step()"


def test_once_an_epoch_stays() -> None:
    conversion = check_noop("epoch", "scheduler.step()", "ACC403", "ACC407", ready=STEP)
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text
    check_noop("epoch", "scheduler.step()", "ACC407", ready=OWN)


def test_once_a_batch_is_prepared() -> None:
    check_transformed(
        "ready",
        STEP,
        f"{STEP}\nmodel, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        update=BATCH,
    )


def test_a_plateau_on_the_last_loss() -> None:
    check_transformed(
        "epoch",
        "scheduler.step(loss)",
        'scheduler.step(accelerator.reduce(loss, reduction="mean"))',
        ready=PLATEAU,
    )


def test_a_plateau_on_a_local_metric_is_left_to_a_person() -> None:
    conversion = check_transformed(
        "epoch",
        "scheduler.step(x.mean())",
        """
        # TODO(accelify ACC403): give every process the same number: accelerator.reduce(value, reduction="mean")
        scheduler.step(x.mean())
        """,
        ready=PLATEAU,
    )
    assert "ACC403" in {f.code for f in conversion.remaining}


def test_a_plateau_on_a_gathered_metric_stays() -> None:
    evaluate = """
    def evaluate():
        total = 0
        with torch.no_grad():
            for a, b in test_loader:
                output = model(a)
                total += F.cross_entropy(output, b).item()
        return total
    """
    lines = textwrap.dedent(evaluate) + PLATEAU
    conversion = check_noop("epoch", "value = evaluate()\nscheduler.step(value)", "ACC403", ready=lines)
    assert "gather_for_metrics((output, b))" in conversion.new_text


def test_one_of_the_programs_own() -> None:
    conversion = convert(ready=OWN, update=BATCH)
    assert "ACC407" in {f.code for f in conversion.remaining}
    assert "ACC407" not in codes(convert("total", ready=OWN, update=BATCH)), (
        "split batches are as many as before"
    )
