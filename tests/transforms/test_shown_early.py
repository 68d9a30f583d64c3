"""Prints above the Accelerator, and progress bars of other modules: named."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, frame

SCRIPT = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader


class Runner:
    def __init__(self, options):
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        print("made")

    def fit(self):
        for x in DataLoader(list(torch.randn(8, 3)), batch_size=2):
            self.optimizer.zero_grad()
            self.model(x).mean().backward()
            self.optimizer.step()


def main(options):
    {main}
    Runner(options).fit()


if __name__ == "__main__":
    {guard}
    main(argparse.Namespace(lr=0.1))
"""
HELPER = """\
import sys
from tqdm import tqdm


def extract(items, quiet=False):
    return [one for one in tqdm(items{options})]


def both(items, quiet=False):
    {body}
    return items
"""


def said(found: Conversion, code: str) -> list[str]:
    return [f.message for f in found.remaining if f.code == code]


@pytest.mark.parametrize(
    ("main", "guard", "lines"),
    [
        ("print(options)", "pass", "line 21"),
        ("pass", "print('begun')", "line 26"),
        ("print(options)", "print('begun')", "lines 21, 26"),
        ("pass", "pass", ""),
        ("import sys; print(options, file=sys.stderr)", "pass", ""),
        ("try: options.lr\n    except AttributeError: print(options)", "pass", ""),
    ],
)
def test_prints_above_the_accelerator_are_named_once(main: str, guard: str, lines: str) -> None:
    found = convert_source(Source.from_text(SCRIPT.format(main=main, guard=guard), PATH))
    assert found.status == "converted"
    message = f"every process prints this, where there is no Accelerator to ask ({lines})"
    assert said(found, "ACC201") == ([message] if lines else [])


@pytest.mark.parametrize(
    ("main", "guard", "lines"),
    [
        ("logging.info(options)", "pass", "line 23"),
        ("log.info(options)", "log.info('begun')", "lines 23, 28"),
        ("log.warning(options)", "log.warning('begun')", ""),
        ("pass", "pass", ""),
    ],
)
def test_lines_logged_above_the_accelerator_are_named_once(main: str, guard: str, lines: str) -> None:
    text = SCRIPT.format(main=main, guard=guard).replace(
        'print("made")', 'log.info("made")\n        log.debug("too")'
    )
    text = text.replace("\n\n\nclass", "\nlog = logging.getLogger(__name__)\n\n\nclass", 1)
    found = convert_source(Source.from_text(text.replace("argparse", "argparse, logging", 1), PATH))
    assert found.status == "converted"
    assert "logging.disable(logging.INFO)" in found.new_text
    message = f"every process logs this, where there is no Accelerator to ask ({lines})"
    assert said(found, "ACC209") == ([message] if lines else [])


@pytest.mark.parametrize(
    ("options", "body", "line"),
    [
        ("", "pass", "line 6"),
        (", disable=quiet", "pass", ""),
        (", **{}", "pass", ""),
        (", disable=True", "for one in tqdm(items): pass", "line 10"),
        (", disable=True", "items = extract(items)", ""),
        ("", "items = extract(items)", "line 6"),
        (", disable=True", "if not quiet:\n        items = list(tqdm(items))", ""),
        (", disable=True", "return items\n    items = list(tqdm(items))", ""),
    ],
)
def test_bars_of_other_modules_are_named_once(tmp_path: Path, options: str, body: str, line: str) -> None:
    (tmp_path / "helper.py").write_text(HELPER.format(options=options, body=body))
    ready = "a = helper.extract([1])\nb = helper.extract([2])\nc = helper.both([3])"
    (tmp_path / "train.py").write_text(frame(imports="import helper", ready=ready))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    message = f"every process draws the progress bars of functions of other modules (helper.py, {line})"
    assert said(found, "ACC202") == ([message] if line else [])


def test_a_bar_that_only_the_main_process_comes_to_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "from tqdm import tqdm\n\n\ndef keep(items):\n    with open('a', 'w') as file:\n"
        "        for one in tqdm(items):\n            file.write(str(one))\n"
    )
    (tmp_path / "train.py").write_text(frame(imports="import helper", ready="helper.keep([1])"))
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert "if accelerator.is_main_process:\n    helper.keep([1])" in found.new_text
    assert not said(found, "ACC202")


SHOWS = """\
def show(options, loud=False):
    if loud:
        print("loud")
    print(options)


def count(n):
    print("n")
    return n


def quiet(n):
    return n
"""


@pytest.mark.parametrize(
    ("main", "guard", "lines"),
    [
        ("pass", "show(1)", "line 4"),
        ("show(options, loud=True)", "pass", "lines 3, 4"),
        ("show(options)", "count(2)", "lines 4, 8"),
        ("n = count(2)", "pass", "line 8"),
        ("quiet(2)", "quiet(2)", ""),
        ("pass", "try: main(1)\n    except OSError: show(1)", ""),
    ],
)
def test_what_other_modules_print_above_the_accelerator(
    tmp_path: Path, main: str, guard: str, lines: str
) -> None:
    (tmp_path / "helper.py").write_text(SHOWS)
    text = "from helper import count, quiet, show\n" + SCRIPT.format(main=main, guard=guard)
    (tmp_path / "train.py").write_text(text)
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    message = f"every process prints what functions of other modules print (helper.py, {lines})"
    assert said(found, "ACC201") == ([message] if lines else [])


def test_a_main_of_another_module_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(SHOWS)
    steps = "def step(loss):\n    loss.backward()\n\n\nif __name__ == '__main__':\n    show(1)\n"
    (tmp_path / "steps.py").write_text(f"from helper import show\n\n\n{steps}")
    (tmp_path / "train.py").write_text(frame(imports="from steps import step", backward="step(loss)"))
    conversions = convert_project(Source.read(tmp_path / "train.py"))
    assert [c.status for c in conversions] == ["converted", "converted"]
    assert not [text for one in conversions for text in said(one, "ACC201")]
