"""ACC201: prints of functions that need the Accelerator for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms.support import PATH

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Report:
    def __init__(self):
        self.best = 0

    def tell(self, figure):
        print("best", figure)


def test(model):
    print("norm", model.weight.norm())


def unused():
    print("never")


def main():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report = Report()
    for x, y in DataLoader(list(range(8))):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    test(model)
    report.tell(1)


if __name__ == "__main__":
    main()
"""


def convert(text: str) -> Conversion:
    conversion = convert_source(Source.from_text(text, PATH))
    assert conversion.status == "converted", conversion.reason
    return conversion


def prints(conversion: Conversion) -> list[str]:
    """The lines, as they are written, of which the engine says that every process prints them."""
    prove([conversion], conversion)
    lines = conversion.source.text.splitlines()
    said = [one for one in conversion.remaining if one.message.startswith("every process prints this")]
    also = [re.search(r"the same at lines? ([\d, ]+)", one.message) for one in said]
    more = [int(number) for one in also if one is not None for number in one[1].split(", ")]
    return [lines[number - 1].strip() for number in sorted({*(one.line for one in said), *more})]


def test_a_function_that_main_calls_takes_the_accelerator_to_print() -> None:
    found = convert(SCRIPT)
    assert "def test(accelerator, model):\n    accelerator.print(" in found.new_text
    assert "    test(accelerator, model)\n" in found.new_text
    assert 'def unused():\n    print("never")\n' in found.new_text


def test_a_class_is_not_changed_for_a_print_but_said() -> None:
    found = convert(SCRIPT)
    assert "report = Report()\n" in found.new_text
    assert prints(found) == ['print("best", figure)']


def test_a_function_that_is_handed_on_is_said_too() -> None:
    found = convert(SCRIPT.replace("    test(model)\n", "    test(model)\n    model.apply(test)\n"))
    assert "def test(model):\n    print(" in found.new_text
    assert 'print("norm", model.weight.norm())' in prints(found)


NETWORK = """\
def part(width):
    print("part")
    return nn.Linear(4, width)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.part = self.found(width)

    def found(self, width):
        print("found")
        return part(width)

    def forward(self, x):
        return self.part(x)


def built(width):
    return Net(width)


"""


def beyond(made: str, **changed: str) -> list[str]:
    """What is said of the prints of a network that another function than the one which trains makes."""
    text = SCRIPT.replace("def main():\n", f"{NETWORK}def main():\n")
    for before, after in changed.items():
        text = text.replace(before, after)
    return [
        line for line in prints(convert(text.replace("nn.Linear(4, 2)\n", f"{made}\n"))) if "best" not in line
    ]


def test_what_is_printed_farther_from_the_accelerator_is_said_once() -> None:
    assert beyond("built(2)") == ['print("part")', 'print("found")']


def test_a_network_that_is_made_by_who_has_the_accelerator_is_said_as_before() -> None:
    assert beyond("Net(2)", **{"return Net(width)": "return width"}) == ['print("part")', 'print("found")']


@pytest.mark.parametrize(
    "changed",
    [
        {"return Net(width)": "return nn.Linear(4, width)"},
        {"self.found(width)": "nn.Linear(4, width)"},
    ],
)
def test_what_nobody_comes_to_is_not_said(changed: dict[str, str]) -> None:
    assert beyond("built(2)", **changed) == []


@pytest.mark.parametrize(
    "call", ["Deep().go()", "if __name__ == '__main__':\n    Deep().go()", "def unused():\n    Deep().go()"]
)
def test_of_another_module_only_what_the_script_runs_is_said(tmp_path: Path, call: str) -> None:
    (tmp_path / "steps.py").write_text(
        "from torch.nn import functional as F\n\n\n"
        "class Deep:\n    def go(self):\n        self.tell()\n\n    def tell(self):\n        print(1)\n\n\n"
        "def step(model, optimizer, x, y):\n    loss = F.cross_entropy(model(x), y)\n"
        f"    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n\n\n{call}\n"
    )
    begin, end = SCRIPT.index("        loss = "), SCRIPT.index("    test(model)")
    text = SCRIPT[:begin] + "        step(model, optimizer, x, y)\n" + SCRIPT[end:]
    (tmp_path / "train.py").write_text(f"from steps import step\n{text}")
    found = convert_project(Source.read(tmp_path / "train.py"))
    prove(found, next(one for one in found if one.source.path == tmp_path / "train.py"))
    said = [f for c in found for f in c.remaining if f.code == "ACC702" and f.path.endswith("steps.py")]
    assert bool(said) is call.startswith("Deep")


ITEMS = """\
class Pictures(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        try:
            return self.read(index)
        except OSError as error:
            {told}
            return torch.zeros(4), 0

    def read(self, index):
        return torch.load(str(index))

    def tell(self, index):
        print("no picture", index)


"""


@pytest.mark.parametrize("told", ['print("no picture", error)', "self.tell(index)"])
def test_what_a_data_set_prints_of_a_sample_that_fails_stays_with_its_rank(told: str) -> None:
    items = ITEMS if "tell" in told else ITEMS.partition("    def tell")[0] + "\n"
    items = items.format(told=told)
    text = SCRIPT.replace("class Report", f"{items}class Report").replace("list(range(8))", "pictures")
    found = convert(text.replace("report = Report()", "report, pictures = Report(), Pictures(8)"))
    assert items in found.new_text
    assert not any("picture" in line for line in prints(found))
