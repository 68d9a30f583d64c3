"""ACC201: prints of functions that need the Accelerator for nothing else."""

from __future__ import annotations

from accelify.convert import Conversion, convert_source
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
    return [f.message for f in conversion.remaining if f.code == "ACC201"]


def test_a_function_that_main_calls_takes_the_accelerator_to_print() -> None:
    found = convert(SCRIPT)
    assert "def test(accelerator, model):\n    accelerator.print(" in found.new_text
    assert "    test(accelerator, model)\n" in found.new_text
    assert 'def unused():\n    print("never")\n' in found.new_text


def test_a_class_is_not_changed_for_a_print_but_said() -> None:
    found = convert(SCRIPT)
    assert "report = Report()\n" in found.new_text
    assert prints(found) == ["every process prints this: `Report` has no way to the Accelerator"]


def test_a_function_that_is_handed_on_is_said_too() -> None:
    found = convert(SCRIPT.replace("    test(model)\n", "    test(model)\n    model.apply(test)\n"))
    assert "def test(model):\n    print(" in found.new_text
    assert "every process prints this: `test` has no way to the Accelerator" in prints(found)
