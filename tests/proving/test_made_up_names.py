"""What differs between processes and comes of no data is no figure: names that each makes up, and what they decide."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.proving.several_programs import GROUP, findings, named

TEXT = """
import os, tempfile, uuid
from measures import distance
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
total = 0.0
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    accelerator.backward(loss)
    opt.step()
    total += loss.item()
name = os.path.join("runs", uuid.uuid4().hex)
with tempfile.TemporaryDirectory() as temp:
    value = distance(temp)
kind = "old" if os.path.exists(name) else "new"
if accelerator.is_main_process:
    print(SHOWN)
"""


@pytest.mark.parametrize(
    ("shown", "is_figure"),
    [
        ("f'{kind} settings are left out: {name}'", False),
        ("value", False),
        ("total", True),
        ("value + total", True),
        ("f'{kind} {total:.3f}'", True),
        ("accelerator.process_index * total", True),
    ],
)
def test_what_is_no_figure(shown, is_figure, tmp_path):
    found = named(TEXT.replace("SHOWN", shown), tmp_path, "accelerate")
    assert found == ([("ACC701", f"print({shown})")] if is_figure else [])


TOLD = """
from trackers import make
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4))
tracker = make({"processes": accelerator.num_processes}, GIVEN)
epochs = 2 if tracker.can_recall else 3
for epoch in range(epochs):
    for x, y in loader:
        opt.zero_grad()
        accelerator.backward(F.mse_loss(model(x), y))
        opt.step()
"""


@pytest.mark.parametrize(
    ("given", "is_right"),
    [("silent=not accelerator.is_main_process", True), ("rank=accelerator.process_index", False)],
)
def test_an_object_that_shows_something_on_main_alone(given, is_right, tmp_path):
    """A flag by its name says who shows it; an object that gets its rank may be another one on each."""
    found = named(TOLD.replace("GIVEN", given), tmp_path, "accelerate")
    assert (found == []) is is_right


@pytest.mark.parametrize(("name", "begin", "expected"), [
    ("diffusers", '__version__ = "0.30"', []),
    ("diffusers", "", [2]),
    ("nets", '__version__ = "0.30"', [2]),
])  # fmt: skip
def test_what_a_copy_of_a_library_does_by_itself(name, begin, expected, tmp_path):
    """It is no part of the script: of an installed one nothing would be found either."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(begin + "\nfrom .made import make\n")
    (tmp_path / name / "made.py").write_text("def make(size):\n    print('made')\n    return size\n")
    text = f"from {name} import make\naccelerator = Accelerator()\nmake(4)\naccelerator.wait_for_everyone()\n"
    found = findings(text, tmp_path, "accelerate")
    assert [one.line for one in found if one.path.endswith("made.py")] == expected


@pytest.mark.parametrize(
    ("name", "is_right"), [("time.strftime('%H%M%S')", True), ("str(dist.get_rank())", False)]
)
def test_what_is_there_under_a_name_by_the_clock(name, is_right, tmp_path):
    """Each process has made it itself, in this run."""
    text = f"""
    import time
    from pathlib import Path

    folder = Path("runs") / {name}
    begin = 0
    if folder.exists():
        begin = 1
    for epoch in range(begin, 3):
        dist.barrier()
    """
    found = named(GROUP + dedent(text), tmp_path)
    assert (("ACC704", "dist.barrier()") not in found) == is_right


IN_HANDLERS = """
import time
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
except RuntimeError:
    {in_handler}
    raise
{after}
"""
BY_CLOCK = 'torch.save(model.module.state_dict(), f"{time.asctime()}.pt")'


@pytest.mark.parametrize(("place", "codes"), [("in_handler", set()), ("after", {"ACC703"})])
def test_names_by_the_clock_of_a_process_that_fails(place, codes, tmp_path):
    """Nobody looks for what a process writes that has an error of its own."""
    text = GROUP + IN_HANDLERS.format(**({"in_handler": "pass", "after": ""} | {place: BY_CLOCK}))
    assert {code for code, _ in named(text, tmp_path)} & {"ACC703"} == codes
