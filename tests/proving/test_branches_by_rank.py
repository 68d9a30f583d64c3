"""What the main process does on one way of a condition, the others on the other: all meet where both do alike."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, NET, named

WAYS = (
    GROUP
    + NET
    + """
from tqdm import tqdm

rank = dist.get_rank()
whole = DataLoader(data, batch_size=4)
short = [1, 2]
model.{mode}()
if rank == 0:
    for n, (x, y) in enumerate(tqdm({one})):
        {first}
        if n == 2:
            {second}
else:
    for x, y in {other}:
        {first}
"""
)
TRAINED = "opt.zero_grad(); model(x).mean().backward(); opt.step()"


@pytest.mark.parametrize(
    ("one", "other", "second", "is_right"),
    [
        ("loader", "loader", "print(n)", True),
        ("loader", "whole", "print(n)", False),
        ("zip(loader, short)", "loader", "print(n)", False),
        ("loader", "loader", "break", False),
        ("loader", "loader", "model(x).mean().backward()", False),
    ],
)
def test_training_with_a_bar_of_the_main_process(one, other, second, is_right, tmp_path):
    text = WAYS.format(mode="train", first=TRAINED, one=one, other=other, second=second)
    found = [line for code, line in named(text, tmp_path) if code == "ACC704"]
    assert found == [] if is_right else TRAINED in found


@pytest.mark.parametrize(
    ("second", "is_right"), [("torch.save(x, 'x.pt')", True), ("model(x)", False), ("break", False)]
)
def test_evaluation_of_all_data_by_all(second, is_right, tmp_path):
    text = WAYS.format(mode="eval", first="out = model(x)", one="whole", other="whole", second=second)
    found = [line for code, line in named(text, tmp_path) if code == "ACC704"]
    assert found == ([] if is_right else ["out = model(x)"])


FLAGGED = """
is_main = dist.get_rank() == 0
if is_main:
    print("begun")
    dist.barrier()
else:
    {other}
for x, y in loader:
    opt.zero_grad()
    loss = model(x).mean()
    loss.backward()
    opt.step()
    if is_main:
        {alone}
"""


@pytest.mark.parametrize(
    ("other", "alone", "lines"),
    [
        ("dist.barrier()", "pass", []),
        ("dist.barrier()", "dist.reduce(loss, dst=0)", ["dist.reduce(loss, dst=0)"]),
        ("pass", "pass", ["dist.barrier()"]),
    ],
)
def test_each_condition_by_a_flag_is_by_itself(other, alone, lines, tmp_path):
    text = GROUP + NET + FLAGGED.format(other=other, alone=alone)
    assert [line for code, line in named(text, tmp_path) if code == "ACC704"] == lines


SENT = """
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    begun = torch.load("begun.pt", map_location="cpu")
    {sent}
    begun = begun.item()
else:
    begun = torch.zeros(1)
    {sent}
    begun = begun.item()
model = DDP(torch.nn.Linear(4, 1))
if begun < 4:
    model(torch.ones(1, 4)).sum().backward()
"""


def test_what_the_main_process_sends_on_both_ways(tmp_path):
    assert named(SENT.format(sent="dist.broadcast(begun, src=0)"), tmp_path) == []
