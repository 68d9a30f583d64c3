"""Losses, loops and steps that go with a count of the rounds of each process, which is 1/N of the original's."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import numpy as np, os, torch
from pathlib import Path
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
data = torch.load("d")
optimizer = torch.optim.SGD((model := torch.nn.Linear(2, 1)).parameters(), 0.1)
loader = DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
weight, step, rounds = 0.1, 0, len(data) // 8
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = ((model(x) - y) ** 2).mean()
"""
STEP = "        accelerator.backward(loss)\n        optimizer.step()\n"


def named(body: str) -> list[str]:
    """The demands that are not proved of a training loop with these lines before and after its step."""
    found = validate(HEAD + body, None, KNOWLEDGE).of(Status.NAMED)
    return [f"{one.sink}/{one.demand}" for one in found]


@pytest.mark.parametrize(
    "line",
    [
        "weight += 0.2 / rounds; loss = loss * weight",
        "step += 1; loss = loss + min(1.0, step / 1000) * model.weight.norm()",
        "loss = loss * (1 - i / rounds)",
        "loss = loss * np.exp(-i)",
        "loss = loss + model.weight.norm() if i > 100 else loss",
        "loss = loss * (0.1 if i < 100 else 1.0)",
    ],
)
def test_a_coefficient_that_grows_by_the_rounds_of_each_process(line: str) -> None:
    assert named(f"        {line}\n{STEP}") == ["backward/rounds"]


def test_the_count_is_what_is_named_and_not_what_else_is_of_the_batch() -> None:
    total = "((model(x) - y) ** 2).sum() + min(1.0, step / 40) * model(x).pow(2).sum()"
    body = f"        loss = {total}\n        loss = loss / x.size(0)\n"
    found = validate(f"{HEAD}{body}{STEP}        step += 1\n", None, KNOWLEDGE).of(Status.NAMED)
    (reason,) = [one.reason for one in found if one.demand == "rounds"]
    assert reason is not None
    assert reason.steps()[-1].text.startswith("`step`")


@pytest.mark.parametrize("kept", ["", "        weight = max(0.01, weight * 0.999)\n"])
def test_a_draw_against_a_number_that_shrinks_in_each_round(kept: str) -> None:
    chosen = "        if np.random.random() < weight: loss = model(y).mean()\n"
    assert named(f"{chosen}{STEP}{kept}") == (["backward/rounds"] if kept else [])


@pytest.mark.parametrize(
    "line",
    [
        "p = (i + epoch * len(loader)) / 3 / len(loader); loss = loss * (2 / (1 + np.exp(-10 * p)) - 1)",
        "loss = loss * (1 - i / len(loader))",
        "loss = loss * 0.1 ** epoch",
        "loss = loss + model.weight.norm() if epoch > 1 else loss",
        "loss = loss + model.weight.norm() if i > len(loader) // 2 else loss",
        "loss = loss + model.weight.norm() if i % 16 == 0 else loss",
        "loss = loss + model.weight.norm() if i > 0 else loss",
    ],
)
def test_a_coefficient_that_is_the_originals_at_the_same_place_of_training(line: str) -> None:
    assert named(f"        {line}\n{STEP}") == []


@pytest.mark.parametrize(
    "test",
    [
        "i >= 7",
        "step > 200",
        "i == rounds - 1",
        "(epoch + 1) * i > 900",
        "step * 8 >= len(data)",
        "i + 1 >= rounds",
        "i > rounds // 2",
    ],
)
def test_a_loop_that_ends_by_a_count_of_each_process(test: str) -> None:
    assert named(f"        step += 1\n{STEP}        if {test}: break\n") == ["leave/rounds"]


@pytest.mark.parametrize(
    "test",
    [
        "i == len(loader) - 1",
        "i >= len(loader)",
        "i >= rounds",
        "int(len(data) / 8) <= i",
        "i == len(data) // 8 // accelerator.num_processes",
        "step >= 2 * len(loader)",
        "epoch == 2",
    ],
)
def test_a_loop_that_ends_where_the_originals_does(test: str) -> None:
    assert named(f"        step += 1\n{STEP}        if {test}: break\n") == []


STEPS = (
    HEAD.partition("for epoch")[0]
    + """\
{made}
step = 0
while step < {total}:
    for x, y in loader:
        accelerator.backward(((model(x) - y) ** 2).mean())
        optimizer.step()
        step += 1
"""
)


@pytest.mark.parametrize(
    ("made", "total", "found"),
    [
        ("each = len(data) / 8; total = int(each * 3)", "total", ["leave/rounds"]),
        ("", "len(data) // 8 * 3", ["leave/rounds"]),
        ("", "5000", ["leave/rounds"]),
        ("total = len(loader) * 3", "total", []),
        ("total = len(data) // 8 // accelerator.num_processes", "total", []),
    ],
)
def test_a_training_that_ends_by_its_steps(made: str, total: str, found: list[str]) -> None:
    named_ones = validate(STEPS.format(made=made, total=total), None, KNOWLEDGE).of(Status.NAMED)
    assert [f"{one.sink}/{one.demand}" for one in named_ones] == found


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        ("itertools.islice(loader, 5)", ["leave/rounds"]),
        ("enumerate(itertools.islice(loader, 2, 9))", ["leave/rounds"]),
        ("itertools.islice(loader, len(loader))", []),
        ("itertools.islice(loader, 2, None)", []),
        ("itertools.islice(range(9), 5)", []),
    ],
)
def test_a_loop_over_the_first_rounds_of_each_process(rounds: str, found: list[str]) -> None:
    assert named(f"{STEP}import itertools\nfor b in {rounds}: accelerator.wait_for_everyone()\n") == found


def test_steps_in_turn_and_steps_after_so_many_rounds() -> None:
    turn = "        accelerator.backward(loss)\n        if i % 5 == 0 and not i % 3: optimizer.step()\n"
    late = "        accelerator.backward(loss)\n        if epoch * len(loader) + i > 500: optimizer.step()\n"
    assert named(turn) == []
    assert named(late) == ["step/rounds"]


def test_a_state_that_the_round_before_left() -> None:
    carried = (
        "        out, state = rnn(x, state)\n        loss = out.mean()\n        state = state.detach()\n"
    )
    rnn = "rnn, state = torch.nn.LSTM(2, 3, batch_first=True), torch.zeros(1)\n"
    before, after = HEAD.split("for epoch")
    script = before + rnn + "for epoch" + after
    assert [
        f"{one.sink}/{one.demand}"
        for one in validate(script + carried + STEP, None, KNOWLEDGE).of(Status.NAMED)
    ] == ["backward/rounds"]
    fresh = "        state = torch.zeros(1)\n" + carried
    assert not validate(script + fresh + STEP, None, KNOWLEDGE).of(Status.NAMED)


@pytest.mark.parametrize(
    ("every", "found"),
    [
        ("len(loader) // 5", ["divide/rounds"]),
        ("max(len(loader) // 5, 1)", []),
        ("len(loader) // 5 or 1", []),
        ("rounds // 5", []),
        ("len(loader)", []),
    ],
)
def test_a_divisor_that_is_0_where_a_process_has_few_rounds(every: str, found: list[str]) -> None:
    lines = f"        every = {every}\n        if i % every == 0: optimizer.zero_grad()\n"
    assert named(lines + STEP) == found


@pytest.mark.parametrize(
    "write",
    [
        "state.data.copy_(torch.randn(8, 4))",
        "state.normal_(0, 1)",
        "state.resize_(x.size(0), 4).fill_(1.0)",
        "state.data.resize_as_(x).copy_(x)",
    ],
)
def test_a_tensor_that_each_round_writes_whole(write: str) -> None:
    before, after = HEAD.split("for epoch")
    script = before + "state = torch.zeros(8, 4)\nfor epoch" + after
    lines = f"        {write}\n        loss = loss + (state * model(x)).mean()\n"
    assert not validate(script + lines + STEP, None, KNOWLEDGE).of(Status.NAMED)


def test_a_tensor_that_the_round_before_wrote() -> None:
    before, after = HEAD.split("for epoch")
    script = before + "state = torch.zeros(8, 4)\nfor epoch" + after
    lines = "        loss = loss + (state * model(x)).mean()\n        state.data.copy_(x)\n"
    found = validate(script + lines + STEP, None, KNOWLEDGE).of(Status.NAMED)
    assert [f"{one.sink}/{one.demand}" for one in found] == ["backward/rounds"]


@pytest.mark.parametrize(
    ("end", "ends_early"),
    [
        ("i >= len(loader) + 1", False),
        ("i == len(loader) - 1", False),
        ("i + 1 >= len(loader)", False),
        ("i >= rounds + 1", True),
        ("i >= 100", True),
    ],
)
def test_a_loop_that_ends_by_the_length_of_its_loader(end: str, ends_early: bool) -> None:
    assert named(f"{STEP}        if {end}: break\n") == (["leave/rounds"] if ends_early else [])


SCHEDULED = """
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
def main():
    accelerator = Accelerator()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(list(range(8)))
    made = {"loader": loader}
    total = len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, RATE)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    PREPARED
    for x in loader:
        accelerator.backward(model(x).mean())
        optimizer.step()
        scheduler.step()
main()
"""


@pytest.mark.parametrize(
    ("rate", "of_rounds"),
    [
        ("lambda s: 1 - s / len(loader)", True),
        ("[lambda s: 1 - s / len(loader), lambda s: 1.0]", True),
        ("lambda s: max(0.1, 1 - s / (2 * len(loader)))", True),
        ("lambda s, n=len(loader): 1 - s / n", False),
        ("lambda s: 1 - s / total", False),
        ("lambda s: 1 - s / len(made['loader'])", False),
        ("lambda s: 0.9 ** s", False),
    ],
)
def test_what_a_schedules_function_reads_as_it_is_called(rate: str, of_rounds: bool) -> None:
    """The length of a prepared loader is in rounds, whose schedule is stepped as it is; another one is prepared."""
    script = SCHEDULED.replace("RATE", rate)
    for ready, wrong in (("scheduler = accelerator.prepare(scheduler)", of_rounds), ("pass", not of_rounds)):
        found = validate(script.replace("PREPARED", ready)).of(Status.NAMED)
        assert bool([one for one in found if one.sink == "schedule"]) == wrong


@pytest.mark.parametrize(
    ("counted", "status"),
    [
        ("step", Status.LOOP),
        ("i", Status.LOOP),
        ("{'step': step, 'epoch': epoch}", Status.LOOP),
        ("os.path.join('out', f'text_{step}.csv')", Status.LOOP),
        ("Path('out') / f'text_{step}.csv'", Status.LOOP),
        ("'out/' + str(step) + '.csv'", Status.LOOP),
        ("step * 8", Status.NAMED),
        ("seen", Status.NAMED),
        ("i / 2", Status.NAMED),
    ],
)
def test_a_count_of_steps_is_shown_as_one_and_what_is_made_of_it_is_not(counted: str, status: Status) -> None:
    body = f"{STEP}        step += 1\n        seen += 8\n        weight += 0.5\n"
    text = HEAD.replace("weight, step", "seen, weight, step = 0, 0.1, 0; weight, step")
    found = validate(f"{text}{body}accelerator.print({counted})\n", None, KNOWLEDGE)
    (shown,) = [one for one in found.obligations if one.demand == "content"]
    assert shown.status is status
    assert ("counts of steps" in shown.found) == (status is Status.LOOP)
    assert ("accelerator.num_processes" in shown.found) == (status is Status.NAMED)


@pytest.mark.parametrize("owner", ["", "state."])
def test_steps_that_go_on_from_a_checkpoint_are_a_count_of_steps(owner: str) -> None:
    """A script that resumes begins with a number that is no power of the processes away; so does an attribute."""
    begun = f"state = types.SimpleNamespace()\n{owner}step = torch.load('last.pt')['step']\n"
    text = f"import types\n{HEAD.replace('for ', begun + 'for ', 1)}"
    body = f"{STEP}        {owner}step += 1\naccelerator.save({{'step': {owner}step}}, 'next.pt')\n"
    found = validate(text + body, None, KNOWLEDGE)
    (shown,) = [one for one in found.obligations if one.demand == "content"]
    assert (shown.status, "counts of steps" in shown.found) == (Status.LOOP, True)


@pytest.mark.parametrize("drops", [True, False])
def test_means_over_batches_of_which_none_is_short(drops: bool) -> None:
    text = HEAD.replace("batch_size=8", f"batch_size=8, drop_last={drops}").replace(
        "step, rounds", "total, rounds"
    )
    body = f"{STEP}        total += accelerator.reduce(loss.detach(), 'mean').item()\n"
    assert bool(validate(text + body + "print(total / len(loader))\n", None, KNOWLEDGE).means) is not drops


@pytest.mark.parametrize(
    ("reset", "found"),
    [
        ("            step = 0\n", []),
        ("            step, weight = 0, 0.1\n", []),
        ("", ["step/rounds"]),
    ],
)
def test_gradients_are_accumulated_by_a_count_that_starts_over(reset: str, found: list[str]) -> None:
    line = "        step += 1\n        accelerator.backward(loss / 4)\n"
    assert named(f"{line}        if step >= 4:\n            optimizer.step()\n{reset}") == found


@pytest.mark.parametrize(("package", "found"), [("accelify.runtime", []), ("accelerate", ["unwrapped"])])
def test_a_model_that_accelify_prepared_is_written_as_the_scripts(package: str, found: list[str]) -> None:
    body = f'{STEP}if accelerator.is_main_process:\n    torch.save(model.cpu(), "model.pt")\n'
    text = (HEAD + body).replace("accelify.runtime", package)
    found_of = validate(text, None, KNOWLEDGE).of(Status.NAMED)
    assert [one.demand for one in found_of if one.sink == "file.write"] == found
