"""Learning rate schedules."""

from __future__ import annotations

import textwrap

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert, frame

STEP = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)"
PLATEAU = "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
BATCH = "optimizer.step()\nscheduler.step()"


def test_once_an_epoch_stays() -> None:
    conversion = check_noop("epoch", "scheduler.step()", "ACC403", ready=STEP)
    assert "accelerator.prepare(model, optimizer, loader)" in conversion.new_text


def test_once_a_batch_is_prepared() -> None:
    check_transformed(
        "ready",
        STEP,
        f"{STEP}\nmodel, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        update=BATCH,
    )


ROUNDS = """
rounds = {number}
for again in range(rounds):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
"""


@pytest.mark.parametrize(
    ("number", "prepared", "said"),
    [
        ("1000 // len(loader) + 1", False, True),  # N times the epochs: as many steps as before
        ("1000 // len(data) + 1", True, False),
        ("10", True, False),
        ("int(input()) or 1000 // len(loader)", True, True),
    ],
)
def test_as_many_steps_as_before_are_stepped_as_before(number: str, prepared: bool, said: bool) -> None:
    text = frame(ready=STEP, end=ROUNDS.format(number=number))
    at, last = text.index("for epoch in range(3)"), text.index("# <end>")
    conversion = convert_source(Source.from_text(text[:at] + text[last:], PATH))
    assert ("loader, scheduler = accelerator.prepare" in conversion.new_text) is prepared
    messages = [f.message for f in conversion.remaining if f.code == "ACC401"]
    assert len(messages) == said
    assert all(("prepare the scheduler then" in message) is not prepared for message in messages)


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
        # TODO(accelify ACC704): give every process the same number: accelerator.reduce(value, reduction="mean")
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


def test_a_plateau_on_a_metric_that_is_gathered_between_the_batches() -> None:
    update = """
    optimizer.step()
    if i % 4 == 0:
        total = 0
        for a, b in test_loader:
            output = model(a)
            total += (output.argmax(1) == b).sum().item()
        scheduler.step(total / len(data))
    """
    conversion = convert(ready=PLATEAU, update=update)
    assert "gather_for_metrics((output, b))" in conversion.new_text
    assert "ACC403" not in codes(conversion)


def test_what_may_be_a_plateau_is_left_as_it_is() -> None:
    imports = "import importlib\n"
    made = """
    kinds = importlib.import_module("torch.optim.lr_scheduler")
    scheduler = getattr(kinds, os.environ["KIND"])(optimizer)
    """
    stepped = """
    optimizer.step()
    if i % 10 == 0:
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            scheduler.step(loss)
        else:
            scheduler.step()
    """
    text = convert(imports=imports, ready=made, update=stepped).new_text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


def test_a_schedule_of_the_length_that_a_trainer_prepared_in_its_constructor() -> None:
    """It counts the steps of one process already, and is stepped as it is."""
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset
class Trainer:
    def __init__(self):
        self.loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.ones(64).long()), batch_size=8)
        self.model = torch.nn.Linear(4, 2)
    def train(self):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(self.loader))
        for x, y in self.loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
Trainer().train()
"""
    conversion = convert_source(Source.from_text(script, PATH))
    assert "optimizer = self.accelerator.prepare(optimizer)" in conversion.new_text


def prepares_schedule(count: str, rounds: str = "n") -> bool:
    text = textwrap.dedent(
        f"""
        import torch
        import torch.nn.functional as F
        from torch.utils.data import DataLoader
        from somewhere import data

        def train(loader, other, model, optimizer, scheduler, taken):
            {count}
            for epoch in range(3):
                batches, others = iter(loader), iter(other)
                for _ in range({rounds}):
                    x, y = next(batches)
                    z, _ = next(others)
                    loss = F.cross_entropy(model(x) + model(z), y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    scheduler.step()

        def main():
            loader, other = DataLoader(data, 4, shuffle=True), DataLoader(data, 4, shuffle=True)
            taken = len(loader)
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            {STEP}
            train(loader, other, model, optimizer, scheduler, taken)

        main()
        """
    )
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    (line,) = [one for one in conversion.new_text.splitlines() if "accelerator.prepare(" in one]
    return "scheduler" in line


def test_once_a_round_of_as_many_as_there_are_batches_is_prepared() -> None:
    assert prepares_schedule("n = len(loader)")
    assert prepares_schedule("n = min(len(loader), len(other))")
    assert prepares_schedule("", "len(loader)")
    assert prepares_schedule(f"n = len(loader)\n{' ' * 12}if n == 0:\n{' ' * 16}n = 8")


def test_once_a_round_of_another_number_stays() -> None:
    assert not prepares_schedule("n = 100")
    assert not prepares_schedule("", "taken")
    assert not prepares_schedule("n = len(loader.dataset)")
    assert not prepares_schedule("n = min(len(loader), 100)")
    assert not prepares_schedule("n = len(loader) if epochs else 100")
