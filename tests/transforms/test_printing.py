"""Prints and logging."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_noop, check_transformed, convert, place_of


@pytest.mark.parametrize(
    "snippet",
    [
        "r = [print(k) for k in range(2)]",
        "show = print",
        "import sys\nprint('a', file=sys.stderr)",
        "text = 'print(1)'  # print(2)",
    ],
)
def test_other_prints_stay(snippet: str) -> None:
    check_noop("epoch", snippet, "ACC201")


def test_a_print_of_the_scripts_own_stays() -> None:
    check_noop("epoch", "print(3)", "ACC201", setup="def print(*a):\n    pass")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("print(loss.item())", "accelerator.print(loss.item())"),
        ("print()", "accelerator.print()"),
        ("print('é', i, sep='')  # é", "accelerator.print('é', i, sep='')  # é"),
        ("print(\n    'a',\n    'b',\n)", "accelerator.print(\n    'a',\n    'b',\n)"),
        ("if i: print('a'); print('b')", "if i: accelerator.print('a'); accelerator.print('b')"),
        ("print(f'{loss.item()} {print}')", "accelerator.print(f'{loss.item()} {print}')"),
    ],
)
def test_prints(before: str, after: str) -> None:
    check_transformed("epoch", before, after)


@pytest.mark.parametrize("line", ["tqdm.write(f'{i}')", "bar.write('a')", "tqdm.tqdm.write('a')"])
def test_what_is_written_past_a_bar(line: str) -> None:
    imports = "import tqdm" if "tqdm.tqdm" in line else "from tqdm import tqdm"
    conversion = convert(
        imports=imports,
        batch="",
        epoch=f"bar = {'tqdm.tqdm' if 'tqdm.tqdm' in line else 'tqdm'}([1])\n{line}",
    )
    assert f"if accelerator.is_main_process:\n        {line}" in conversion.new_text
    check_noop("epoch", "bar = open('x')\nbar.write('a')", "ACC201", imports="from tqdm import tqdm")


def test_prints_of_helpers() -> None:
    check_transformed(
        "setup",
        "def show(n):\n    print(n)",
        "def show(n):\n    accelerator.print(n)",
        epoch="show(3)",
    )


def test_logging_is_quiet_on_the_other_processes() -> None:
    logger = "logger = logging.getLogger(__name__)"
    for call in ("logger.info('x')", "logging.info('x')"):
        conversion = convert(imports="import logging", setup=logger, epoch=call)
        assert "if not accelerator.is_main_process:\n    logging.disable(logging.INFO)" in conversion.new_text
        assert place_of(conversion.new_text, "epoch") == call


def test_warnings_are_for_every_process() -> None:
    logger = "logger = logging.getLogger(__name__)"
    check_noop("epoch", "logger.warning('x')", "ACC209", imports="import logging", setup=logger)
