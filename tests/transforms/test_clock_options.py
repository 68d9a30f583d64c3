"""ACC211: names made from the clock that an object of options keeps."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes, names_path

RUNNER = """\
import argparse
import os
import time
import torch
from torch import nn
from torch.utils.data import DataLoader


class Runner:
    def __init__(self, options):
        self.p = options
        {first}
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        path = os.path.join("runs", {read})
        for x in DataLoader(list(torch.randn(8, 3)), batch_size=2):
            self.optimizer.zero_grad()
            self.model(x).mean().backward()
            self.optimizer.step()
        torch.save(self.model.state_dict(), path)
        self.model.load_state_dict(torch.load(path))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="run")
    parser.add_argument("--restore", action="store_true")
    args = parser.parse_args()
    {named}
    {between}
    Runner(args).fit()
"""
MAIN = """\
import argparse
import os
import time
import torch
from torch import nn
from torch.utils.data import DataLoader


def main(options):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = os.path.join("runs", options.name)
    for x in DataLoader(list(torch.randn(8, 3)), batch_size=2):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="run")
    args = parser.parse_args()
    {named}
    main(args)
"""
NAMED = 'args.name = args.name + "_" + time.strftime("%H:%M")'


def converted(text: str) -> Conversion:
    found = convert_source(Source.from_text(text, PATH))
    assert found.status == "converted", found.reason
    again = convert_source(Source.from_text(found.new_text, PATH))
    assert again.new_text == found.new_text
    return found


def runner(named: str = NAMED, first: str = "pass", read: str = "self.p.name", between: str = "pass") -> str:
    return RUNNER.format(named=named, first=first, read=read, between=between)


@pytest.mark.parametrize(
    "named",
    [
        NAMED,
        f"if not args.restore: {NAMED}",
        'args.name += time.strftime("%H:%M")',
        'args.name = f"{args.name}-{time.time()}"',
    ],
)
def test_a_class_that_is_given_the_options(named: str) -> None:
    assert names_path(converted(runner(named)))


@pytest.mark.parametrize(
    "changed",
    [
        {"between": "print(args.name)"},
        {"between": "os.makedirs(os.path.join('logs', args.name), exist_ok=True)"},
        {"named": "stamp = time.strftime('%H')\n    args.name = args.name + stamp"},
        {"named": "if not args.restore: args.stamp = time.strftime('%H')", "read": "self.p.stamp"},
    ],
)
def test_a_name_that_went_elsewhere_by_then_is_said(changed: dict[str, str]) -> None:
    found = converted(runner(**changed))
    assert "broadcast_object_list" not in found.new_text
    assert names_path(found)


@pytest.mark.parametrize(
    "changed",
    [
        {"read": "'net'"},
        {"named": "args.begun = time.strftime('%H')"},
        {"named": "args.name = args.name + 'a'"},
    ],
)
def test_what_becomes_no_path_stays(changed: dict[str, str]) -> None:
    assert "ACC211" not in codes(converted(runner(**changed)))


def test_a_name_that_a_method_reads_off_what_the_class_keeps() -> None:
    file = "    def file(self):\n        given = self.p\n        return os.path.join('a', given.name)\n\n"
    text = runner(read="self.file()").replace("    def fit(self):", f"{file}    def fit(self):")
    assert names_path(converted(text))


DEFAULT = MAIN.replace('default="run"', "default={default}").replace("{named}", "{between}")


def defaulted(default: str, between: str = "pass", text: str = DEFAULT) -> Conversion:
    return converted(text.format(default=default, between=between))


@pytest.mark.parametrize(
    "default",
    ["time.strftime('%H')", "'run' + time.strftime('%H')", "os.path.join('a', time.strftime('%H'))"],
)
def test_an_option_whose_default_is_a_time_is_named(default: str) -> None:
    assert names_path(defaulted(default))


@pytest.mark.parametrize(
    ("default", "between", "said"),
    [
        ("time.strftime('%H')", "print(args.name)", True),
        ("'run'", "pass", False),
    ],
)
def test_options_that_are_read_by_then_or_are_no_time(default: str, between: str, said: bool) -> None:
    found = defaulted(default, between)
    assert "broadcast_object_list" not in found.new_text
    assert names_path(found) == said


def test_a_name_that_nothing_is_looked_for_under_stays() -> None:
    text = DEFAULT.replace("    model.load_state_dict(torch.load(path))\n", "")
    assert "broadcast_object_list" not in defaulted("time.strftime('%H')", text=text).new_text
