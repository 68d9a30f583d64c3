"""Loops that processes leave together: what they agree on, and where they need not."""

from __future__ import annotations

import textwrap

import pytest

from accelify.convert import convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import PATH, check_noop, check_transformed, codes, convert

OTHERS = "others = DataLoader(data, batch_size=8, shuffle=True)\nbatches = iter(others)"
PAIRED = "a, b = next(batches)\n"


@pytest.mark.parametrize(
    ("test", "kind", "words"),
    [
        ("x.size(0) != a.size(0)", "max", "int({})"),
        ("len(x) != len(a)", "max", "int({})"),
        ("x.shape[0] > a.shape[0]", "max", "int({})"),
        ("x.shape != a.shape", "max", "int({})"),
        ("x.size() != a.size()", "max", "int({})"),
        ("len(x) - len(a) != 0", "max", "int({})"),
        ("len(x) < 2 or len(x) != len(a)", "max", "int(bool({}))"),
        ("epoch and not len(x) == len(a)", "max", "int(bool({}))"),
    ],
)
def test_two_sizes_are_agreed_on_by_the_answer(test: str, kind: str, words: str) -> None:
    after = f'if accelerator.reduce({words.format(test)}, reduction="{kind}"):\n    continue'
    check_transformed("batch", f"{PAIRED}if {test}:\n    continue", f"{PAIRED}{after}", ready=OTHERS)


def test_a_step_where_two_sizes_are_alike_is_taken_where_all_are() -> None:
    loss = (
        "if len(x) == len(a):\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n"
        "    optimizer.step()"
    )
    conversion = convert(batch=PAIRED, loss=loss, backward="", update="", ready=OTHERS)
    assert 'if accelerator.reduce(int(len(x) == len(a)), reduction="min"):' in conversion.new_text


def test_two_sizes_of_batches_that_are_cut_are_those_of_all_shares() -> None:
    text = convert("total", batch=f"{PAIRED}if len(x) != len(a):\n    continue", ready=OTHERS).new_text
    sums = [f'accelerator.reduce(len({name}), reduction="sum")' for name in "xa"]
    assert f"if {' != '.join(sums)}:" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("len(x) == 1 or len(y) == 1", "{x} == 1 or {y} == 1"),
        ("1 < len(x) < 3", "1 < {x} < 3"),
    ],
)
def test_sizes_that_are_compared_with_numbers_are_the_least_of_all(before: str, after: str) -> None:
    least = {name: f'accelerator.reduce(len({name}), reduction="min")' for name in "xy"}
    check_transformed("batch", f"if {before}:\n    continue", f"if {after.format(**least)}:\n    continue")


@pytest.mark.parametrize("made", ["len(x)", "x.size(0)"])
@pytest.mark.parametrize("batch_size", ["per-process", "total"])
def test_samples_by_rounds_are_those_of_all_processes(made: str, batch_size: str) -> None:
    after = f'if i * accelerator.reduce({made}, reduction="sum") > 100:\n    break'
    check_transformed("batch", f"if i * {made} > 100:\n    break", after, batch_size=batch_size)


RAISING = """\
import contextlib
import math
import sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Exploded(RuntimeError):
    pass


def train(net, loader, opt):
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x), y)
        if loss.item() > 1e8:
            raise {error}
        opt.zero_grad()
        loss.backward()
        opt.step()


def run(net, loader, opt):
    train(net, loader, opt)


loader = DataLoader(TensorDataset(torch.randn(160, 4), torch.randn(160, 1)), batch_size=8)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{around}
    run(net, loader, opt)
{handler}
"""
ERROR = "RuntimeError('loss exploded')"


def _agrees(error: str, around: str, handler: str) -> bool:
    text = RAISING.format(error=error, around=around, handler=textwrap.dedent(handler))
    return "ACC405" in codes(convert_source(Source.from_text(text, PATH)))


@pytest.mark.parametrize(
    ("error", "handler"),
    [
        (ERROR, "except KeyboardInterrupt:\n    print('stopped')"),
        (ERROR, "except ValueError:\n    print('stopped')"),
        (ERROR, "except (KeyboardInterrupt, OSError):\n    print('stopped')"),
        (ERROR, "except Exception:\n    print('stopped')\n    raise"),
        (ERROR, "except Exception as e:\n    raise SystemExit(1) from e"),
        (ERROR, "except RuntimeError:\n    print('stopped')\n    sys.exit(1)"),
        (ERROR, "finally:\n    print('stopped')"),
        ("KeyboardInterrupt", "except Exception:\n    print('stopped')"),
        ("IOError('no')", "except ValueError:\n    pass"),
        ("Exploded()", "except ValueError:\n    pass"),
    ],
)
def test_an_error_that_nobody_catches_ends_all_processes(error: str, handler: str) -> None:
    assert not _agrees(error, "try:", handler)


@pytest.mark.parametrize(
    ("error", "around", "handler"),
    [
        (ERROR, "try:", "except:\n    print('stopped')"),
        (ERROR, "try:", "except Exception:\n    print('stopped')"),
        (ERROR, "try:", "except (ValueError, RuntimeError):\n    print('stopped')"),
        (ERROR, "try:", "except KeyboardInterrupt:\n    raise\nexcept Exception:\n    pass"),
        ("OSError('no')", "try:", "except IOError:\n    pass"),
        ("Exploded()", "try:", "except RuntimeError:\n    pass"),
        ("Exploded", "try:", "except Exploded:\n    pass"),
        ("StopIteration", "try:", "except Exception:\n    pass"),
        ("KeyboardInterrupt", "try:", "except KeyboardInterrupt:\n    pass"),
        (ERROR, "with contextlib.suppress(RuntimeError):", ""),
    ],
)
def test_an_error_that_is_caught_is_agreed_on(error: str, around: str, handler: str) -> None:
    assert _agrees(error, around, handler)


def test_a_handler_does_not_catch_what_it_raises() -> None:
    text = "try:\n    pass\nexcept RuntimeError:\n    if loss.item() > 9:\n        raise RuntimeError('a')\n"
    assert "ACC405" not in codes(convert(update=f"optimizer.step()\n{text}"))


SHAPES = "wanted, other = torch.zeros(2), torch.zeros(3)"


def test_sizes_of_what_is_made_once_need_not_agree() -> None:
    check_noop("batch", "if wanted.shape != other.shape:\n    continue", "ACC405", setup=SHAPES)


CLOCKED = "import sys\nimport time\nstart = time.time()"


@pytest.mark.parametrize(
    ("test", "leaving", "after"),
    [
        (
            "time.time() - start > 60",
            "break",
            'accelerator.reduce(int(time.time() - start > 60), reduction="max")',
        ),
        (
            "limit > 0 and spent >= limit",
            "sys.exit(3)",
            'accelerator.reduce(int(bool(limit > 0 and spent >= limit)), reduction="max")',
        ),
        (
            "not (spent < limit or loss.item() > 9)",
            "exit()",
            'accelerator.reduce(int(bool(not (spent < limit or loss.item() > 9))), reduction="max")',
        ),
    ],
)
def test_a_clock_is_agreed_on_before_the_loop_is_left(test: str, leaving: str, after: str) -> None:
    update = f"optimizer.step()\nspent = time.time() - start\nif {test}:\n    {leaving}"
    text = convert(setup=f"{CLOCKED}\nlimit = 5", update=update).new_text
    assert f"if {after}:\n            {leaving}" in text


def test_rounds_that_a_clock_ends() -> None:
    end = """
    while time.time() - start < 60:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    text = convert(setup=CLOCKED, end=end).new_text
    assert 'while accelerator.reduce(int(time.time() - start < 60), reduction="min"):' in text


@pytest.mark.parametrize(
    "body", ["print('still there')", "torch.save(model.state_dict(), 'm.pt'); start = time.time()"]
)
def test_nobody_waits_where_a_clock_only_shows_or_saves(body: str) -> None:
    update = f"optimizer.step()\nif time.time() - start > 60:\n    {body.replace('; ', chr(10) + '    ')}"
    conversion = convert(setup=CLOCKED, update=update)
    assert "ACC405" not in codes(conversion)
    assert "wait_for_everyone" not in conversion.new_text


def test_how_long_something_took_is_no_matter_of_leaving() -> None:
    update = "optimizer.step()\nspent = len(x)\nif spent > 60:\n    break\nspent = time.time() - start"
    text = convert(setup=CLOCKED, update=update).new_text
    assert "int(spent" not in text


@pytest.mark.parametrize(
    ("test", "leaving", "after"),
    [
        (
            'os.path.exists("stop")',
            "os.remove('stop')\n    break",
            'accelerator.reduce(int(bool(os.path.exists("stop"))), reduction="max")',
        ),
        (
            'epoch > 1 and Path("stop").is_file()',
            "break",
            'accelerator.reduce(int(bool(epoch > 1 and Path("stop").is_file())), reduction="max")',
        ),
        (
            'not os.path.isfile("go")',
            "break",
            'accelerator.reduce(int(bool(not os.path.isfile("go"))), reduction="max")',
        ),
        ("found", "break", 'accelerator.reduce(int(bool(found)), reduction="max")'),
    ],
)
def test_a_file_is_agreed_on_before_the_loop_is_left(test: str, leaving: str, after: str) -> None:
    # One process finds it before, or takes it away before the others ask.
    found = "found = os.path.exists('stop')\n" if test == "found" else ""
    text = convert(setup="from pathlib import Path", epoch=f"{found}if {test}:\n    {leaving}").new_text
    assert f"if {after}:\n" in text


@pytest.mark.parametrize("body", ["os.makedirs('out')", "print('there it is')"])
def test_nobody_waits_where_a_file_only_is_asked_for(body: str) -> None:
    conversion = convert(epoch=f"if not os.path.exists('out'):\n    {body}")
    assert "reduce(" not in conversion.new_text
    assert "ACC405" not in codes(conversion)


ATTEMPT = """
for x, y in loader:
    try:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    except {kind}:
        {handler}
"""
SKIPPING = "if 'out of memory' in str(e):\n            print('skipped')\n        else:\n            raise e"


@pytest.mark.parametrize(
    ("kind", "handler", "said"),
    [
        ("RuntimeError as e", SKIPPING, True),
        ("Exception", "continue", True),
        ("(KeyError, ValueError)", "print('skipped')", True),
        ("torch.cuda.OutOfMemoryError", "torch.cuda.empty_cache()", True),
        ("RuntimeError as e", "print(e)\n        raise", False),
        ("Exception", "torch.save(model.state_dict(), 'm.pt')\n        exit(1)", False),
        ("KeyboardInterrupt", "break", False),
        ("StopIteration", "break", False),
    ],
)
def test_an_error_of_a_step_that_one_process_gets_over_is_named(kind: str, handler: str, said: bool) -> None:
    """The others wait for it in the backward of that batch."""
    conversion = convert(end=ATTEMPT.format(kind=kind, handler=handler))
    prove([conversion], conversion)
    assert ("ACC704" in codes(conversion)) is said


def test_an_error_of_a_step_that_its_own_function_gets_over_is_named() -> None:
    ready = """
    def step(x, y):
        try:
            F.cross_entropy(model(x), y).backward()
        except RuntimeError:
            print("skipped")
    """
    end = "for x, y in loader:\n    step(x, y)\n    optimizer.step()"
    conversion = convert(ready=ready, end=end)
    prove([conversion], conversion)
    assert "ACC704" in codes(conversion)


def test_what_is_caught_around_all_of_the_training_or_what_trains_nothing_is_not_named() -> None:
    end = """
    try:
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
    except RuntimeError:
        print("over")
    for x, y in loader:
        try:
            size = x.size(2)
        except IndexError:
            size = 1
    """
    conversion = convert(end=end)
    prove([conversion], conversion)
    assert not {"ACC405", "ACC704"} & codes(conversion)
