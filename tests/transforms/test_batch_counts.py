"""ACC401: numbers of batches that are not `len(loader)`, and epochs that keep the number of steps."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.findings import Severity
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert, frame

SIZE = "batch_size = 8"
SHARE = " // accelerator.num_processes"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "print('[%d/%d]' % (i + 1, len(data) // 8))",
            f"accelerator.print('[%d/%d]' % (i + 1, len(data) // 8{SHARE}))",
        ),
        (
            "print(i, len(loader.dataset) // batch_size)",
            f"accelerator.print(i, len(loader.dataset) // batch_size{SHARE})",
        ),
        (
            "print('{:.0f} %'.format(100 * i / (len(data) / batch_size)))",
            "accelerator.print('{:.0f} %'.format(100 * i / (len(data) / batch_size / accelerator.num_processes)))",
        ),
        (
            "if i == len(data) // batch_size - 1:\n    print('last')",
            f"if i == len(data) // batch_size{SHARE} - 1:\n    accelerator.print('last')",
        ),
    ],
)
def test_a_number_of_batches_that_is_shown_or_asked(before: str, after: str) -> None:
    check_transformed("batch", before, after, setup=SIZE)


def test_a_number_that_has_a_name() -> None:
    """It is divided where it is computed, and only where all that read it count batches of one process."""
    made, shown = "total = len(data) // batch_size", "print('%d/%d' % (i, total))"
    check_transformed("ready", made, made + SHARE, setup=SIZE, batch=shown)
    both = convert(ready=made, setup=SIZE, batch=shown, end="print(total, 'in all')")
    assert made + "\n" in both.new_text
    assert "print(total, 'in all')" in both.new_text
    assert f"print('%d/%d' % (i, total{SHARE}))" in both.new_text


@pytest.mark.parametrize(
    ("where", "test", "share"),
    [
        ("epoch", "epoch > 0 and epoch % total == 0", ""),
        ("batch", "epoch % total == 0", ""),
        ("batch", "epoch < total", ""),
        ("batch", "(epoch * total + i) % 10 == 0", SHARE),
        ("batch", "i % total == 0", SHARE),
    ],
)
def test_a_number_that_epochs_are_compared_with(where: str, test: str, share: str) -> None:
    """It is divided where it stands beside rounds of one process, and stays where it stands beside epochs."""
    both = {"batch": "print('%d/%d' % (i, total))"}
    lines = f"if {test}:\n    rate = 0.1"
    both[where] = f"{both[where]}\n{lines}" if where in both else lines
    text = convert(ready="total = len(data) // batch_size", setup=SIZE, **both).new_text
    assert f"total = len(data) // batch_size{share}\n" in text
    assert f"(i, total{'' if share else SHARE}))" in text
    assert f"if {test}:" in text


def test_in_a_text_it_is_edited() -> None:
    found = convert(setup=SIZE, batch="print(f'{i}/{len(data) // batch_size}')")
    assert "{len(data) // batch_size // accelerator.num_processes}" in found.new_text
    assert "ACC401" not in {f.code for f in found.remaining}


@pytest.mark.parametrize(
    "line",
    [
        "far = i / (len(data) // 10)",  # not the loader's batch size
        "print('%d' % (len(data) // 3))",
        "print(len(data) // batch_size // accelerator.num_processes)",
        "print('mean', seen / (len(data) // batch_size))",
    ],
)
def test_other_numbers_stay(line: str) -> None:
    setup = (
        f"{SIZE}\nfrom accelify.runtime import Accelerator\naccelerator = Accelerator()"
        if "acc" in line
        else SIZE
    )
    batch = f"seen = loss.item() if i else 0\n{line}" if "seen" in line else line
    found = convert_source(Source.from_text(frame(setup=setup, batch=batch), PATH))
    assert found.status in ("converted", "unchanged")
    assert "ACC401" not in codes(found)


def test_outside_of_the_loop_it_stays() -> None:
    check_noop("end", "steps = '%d' % (len(data) // batch_size)", "ACC401", setup=SIZE)
    made = "print('%d batches' % (len(data) // batch_size))"
    assert "ACC401" not in codes(convert(ready=made, setup=SIZE))


def test_where_processes_share_the_batch_size_it_stays() -> None:
    found = convert("total", setup=SIZE, batch="print('[%d/%d]' % (i + 1, len(data) // 8))")
    assert "ACC401" not in codes(found)


ROUNDS = """
epochs = {number}
for again in range(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("math.ceil(1000 / len(loader))", True),
        ("(1000 - 3) // total + 1", True),
        ("math.ceil(1000 / len(loader) / accelerator.num_processes)", False),
        ("math.ceil(1000 / len(loader)) // accelerator.num_processes", False),
        ("1000 // accelerator.num_processes // len(loader)", False),
        ("3 * len(loader) // len(loader)", False),
        ("1000 // len(data)", False),
        ("10", False),
    ],
)
def test_epochs_that_keep_the_number_of_steps(number: str, said: bool) -> None:
    made = (
        "from accelify.runtime import Accelerator\naccelerator = Accelerator()"
        if "accelerator" in number
        else ""
    )
    ready = "total = len(loader)\n" if "total" in number else ""
    end = ready + ROUNDS.format(number=number)
    text = frame(imports=f"import math\n{made}", end=end)
    found = [f for f in convert_source(Source.from_text(text, PATH)).remaining if f.code == "ACC401"]
    assert [f.severity for f in found] == ([Severity.INFO] if said else [])
    assert all("N times the epochs" in f.message for f in found)


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ("range(5000 // len(loader))", True),
        ("range(0, 5000 // len(loader))", True),
        ("range(done // len(loader), 9)", False),  # where a run that was cut short goes on
        ("range(done // len(loader), 5000 // len(loader))", True),
    ],
)
def test_where_a_run_goes_on_makes_no_epoch_more(rounds: str, said: bool) -> None:
    loop = f"for again in {rounds}:\n" + ROUNDS.partition("range(epochs):\n")[2]
    text = frame(imports="done = int(input())", end=loop)
    found = [f for f in convert_source(Source.from_text(text, PATH)).remaining if f.code == "ACC401"]
    assert bool(found) == said


HANDED = """
def note(i, count):
    print(i, count)

def run(loader, count):
    {first}
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if i % int(0.5 * count) == 0:
            note(i, count=count)

each = len(data) / batch_size
run(loader, each)
{more}
"""


@pytest.mark.parametrize(
    ("first", "more", "divided"),
    [
        ("pass", "", True),
        ("count = count / 2", "", False),
        ("pass", "run(loader, 10)", False),
    ],
)
def test_a_number_that_is_handed_on(first: str, more: str, divided: bool) -> None:
    text = convert(setup=SIZE, end=HANDED.format(first=first, more=more)).new_text
    assert ("each = len(data) / batch_size / accelerator.num_processes" in text) is divided
