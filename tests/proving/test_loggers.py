"""What loggers write with each line, and from which level on."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings, named

TRAINED = """
import logging
dist.init_process_group("gloo")
rank = dist.get_rank()
log = logging.getLogger("train")
{setup}
model = DDP(torch.nn.Linear(4, 1))
log.{word}("training begins")
"""


@pytest.mark.parametrize(
    ("setup", "is_quiet"),
    [
        ('logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")', True),
        ('logging.basicConfig(level=logging.INFO, format="{} %(message)s".format(rank))', True),
        (
            'form = logging.Formatter(f"rank {rank}: %(message)s")\nshown = logging.StreamHandler()\n'
            "shown.setFormatter(form)\nlog.addHandler(shown)\nlog.setLevel(logging.INFO)",
            True,
        ),
        ('logging.basicConfig(level=logging.INFO, format="[train] %(message)s")', False),
        ('logging.basicConfig(level=logging.INFO, format=f"[{dist.get_world_size()}] %(message)s")', False),
    ],
)
def test_lines_that_begin_with_the_rank_are_of_each_process(setup, is_quiet, tmp_path):
    line = 'log.info("training begins")'
    assert named(TRAINED.format(setup=setup, word="info"), tmp_path) == [("ACC702", line)] * (not is_quiet)


@pytest.mark.parametrize(
    ("setup", "word", "is_heard"),
    [
        ("logging.basicConfig(level=logging.INFO)", "debug", False),
        ("logging.basicConfig(level=logging.INFO)", "info", True),
        ("logging.basicConfig(level=logging.DEBUG)", "debug", True),
        ("logging.basicConfig(level=logging.INFO)\nlog.setLevel(logging.DEBUG)", "debug", True),
        ("log.setLevel(logging.DEBUG)\nlogging.basicConfig(level=logging.INFO)", "debug", True),
        ("logging.basicConfig(format='%(message)s')", "info", False),
        ("logging.basicConfig(format='%(message)s')", "warning", True),
        ("logging.basicConfig(level=int(os.environ['LEVEL']))", "debug", True),
        ("log.setLevel(logging.ERROR)", "info", True),
        ("logging.basicConfig(level=logging.ERROR)", "warning", True),
    ],
)
def test_what_is_below_the_level_is_written_by_none(setup, word, is_heard, tmp_path):
    line = f'log.{word}("training begins")'
    assert named(TRAINED.format(setup=setup, word=word), tmp_path) == [("ACC702", line)] * is_heard


@pytest.mark.parametrize(
    ("setup", "word", "is_quiet"),
    [
        ("", "info", True),
        ("", "warning", False),
        ("import others\nothers.setup_logging()", "info", False),
        ("shown = logging.StreamHandler()\nlog.addHandler(shown)\nlog.setLevel(logging.INFO)", "info", False),
        (
            "log.setLevel(logging.INFO)\nif rank == 0:\n    log.addHandler(logging.StreamHandler())",
            "info",
            True,
        ),
        (
            "log.setLevel(logging.INFO)\nif rank == 0:\n    log.addHandler(logging.StreamHandler())\n"
            'log.addHandler(logging.StreamHandler(open(f"log.{rank}", "a")))',
            "warning",
            True,
        ),
        (
            "log.setLevel(logging.INFO)\nlog.addHandler(logging.StreamHandler())\n"
            'log.addHandler(logging.StreamHandler(open(f"log.{rank}", "a")))',
            "info",
            False,
        ),
        ('import mmcv.utils\nlog = mmcv.utils.get_logger("train")', "info", True),
    ],
)
def test_handlers_say_who_writes(setup, word, is_quiet, tmp_path):
    line = f'log.{word}("training begins")'
    assert named(TRAINED.format(setup=setup, word=word), tmp_path) == [("ACC702", line)] * (not is_quiet)


PACKAGE = """
import logging
import os

LEVELS = {{"info": logging.INFO, "warning": logging.WARNING}}

def _set_up():
    root = logging.getLogger(__name__.split(".")[0])
    root.addHandler(logging.StreamHandler())
    root.setLevel({level})

def logger_of(name):
    _set_up()
    return logging.getLogger(name)
"""


@pytest.mark.parametrize(
    ("level", "is_quiet"),
    [
        ("logging.WARNING", True),
        ("LEVELS.get(os.getenv('VERBOSITY'), logging.WARNING)", True),
        ("logging.INFO", False),
        ("level_of_options()", False),
    ],
)
def test_a_package_sets_up_a_logger_of_its_own(level, is_quiet, tmp_path):
    """What the script asks of all loggers lets those of the package be."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "logs.py").write_text(PACKAGE.format(level=level))
    (package / "__init__.py").write_text(
        "from .logs import logger_of\nlogger = logger_of(__name__)\nlogger.info('version 1')\n"
    )
    setup = "logging.basicConfig(level=logging.INFO)\nimport package"
    assert (findings(TRAINED.format(setup=setup, word="debug"), tmp_path) == []) == is_quiet
