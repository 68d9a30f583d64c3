"""Loggers of a project's own, and what deletes the files that it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.support import place_of
from tests.transforms.test_effects_in_modules import converted, findings

LOGGER = """
import logging


class Logger:
    def __init__(self):
        self._logger = None

    def init(self, folder, name="log"):
        if self._logger is None:
            if not os.path.exists(folder):
                os.makedirs(folder)
            path = os.path.join(folder, name)
            if os.path.exists(path):
                os.remove(path)
            self._logger = logging.getLogger()
            self._logger.addHandler(logging.FileHandler(path))

    def info(self, text):
        self.init("/tmp", "tmp.log")
        self._logger.info(text)


logger = Logger()


def report(model, x):
    with open("report.txt", "a") as f:
        f.write(str(model(x)))
"""
GUARD = "if accelerator.is_main_process:\n    "


def test_a_logger_that_is_handed_the_model_once_only_formats_it(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path,
        LOGGER,
        setup="logger.init('logs')\ninfo = helper.logger.info\ninfo('begin')",
        ready="info(model)",
        epoch="info('loss %f' % loss.item())",
    )
    assert not findings(conversion)
    assert "main_process_first" not in conversion.new_text
    assert f"{GUARD}logger.init('logs')" in conversion.new_text
    assert place_of(conversion.new_text, "epoch") == f"{GUARD}info('loss %f' % loss.item())"


def test_a_model_is_called_only_where_it_is_handed_over(tmp_path: Path) -> None:
    method = LOGGER + "\nclass Report:\n    def run(self, m, x):\n        report(m, x)\n"
    conversion = converted(tmp_path, method, epoch="Report().run(model, x)\nn = 1\nReport().run(abs, x)")
    (said,) = findings(conversion)
    assert said.endswith("it calls the model")
    expected = f"Report().run(model, x)\nn = 1\n{GUARD}Report().run(abs, x)"
    assert place_of(conversion.new_text, "epoch") == expected


DELETES = {
    "found": "    if os.path.exists(d):\n        os.remove(d)\n",
    "tried": "    try:\n        os.remove(d)\n    except OSError:\n        pass\n",
    "tree": "    import shutil\n    if os.path.isdir(d):\n        shutil.rmtree(d)\n    if not os.path.isdir(d):\n"
    "        os.makedirs(d)\n",
    "path": "    from pathlib import Path\n    if Path(d).exists():\n        Path(d).unlink()\n",
    "by another": "    if os.path.exists(d):\n        clean(d)\n",
}
MAKES = {
    "once": "    if not os.path.exists(d):\n        os.makedirs(d)\n",
    "and cleans up": "    if not os.path.exists(d):\n        os.makedirs(d)\n        os.remove('data.zip')\n",
    "otherwise": "    if os.path.exists(d):\n        pass\n    else:\n        os.makedirs(d)\n        clean('a.zip')\n",
}
HELPER = "def clean(path):\n    os.remove(path)\n\n\ndef folder(d):\n{}    return d\n"


@pytest.mark.parametrize("body", DELETES.values(), ids=DELETES)
def test_what_deletes_what_it_finds_takes_no_turns(tmp_path: Path, body: str) -> None:
    conversion = converted(tmp_path, HELPER.format(body), setup="out = folder('out')")
    assert "main_process_first" not in conversion.new_text
    (said,) = findings(conversion)
    assert said.endswith("its result is used; each deletes what those before it have written")


@pytest.mark.parametrize("body", MAKES.values(), ids=MAKES)
def test_what_is_made_once_is_made_by_the_main_process_first(tmp_path: Path, body: str) -> None:
    conversion = converted(tmp_path, HELPER.format(body), setup="out = folder('out')")
    assert "with accelerator.main_process_first():\n    out = folder('out')" in conversion.new_text
