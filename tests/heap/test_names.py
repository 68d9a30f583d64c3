"""What names stand for: imports in packages, attributes whose names only the run knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import argparse
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
"""
# A class whose loss is the mean of this rank's rows.
PART = "def share(x):\n    return x.sum()\n"


def status(text: str, demand: str = "content", path: Path | None = None) -> list[Status]:
    found = validate(HEAD + text, path, KNOWLEDGE).obligations
    return [one.status for one in found if one.demand == demand]


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "train.py"


SHOWN = "total = 0\nfor x, y in loader:\n    total += int(share(x))\naccelerator.print(total)\n"


@pytest.mark.parametrize(
    "files",
    [
        {"parts/__init__.py": "from . import sums\n", "parts/sums.py": PART},
        {"parts/__init__.py": "from parts import sums\n", "parts/sums.py": f"import parts\n{PART}"},
        {"parts/__init__.py": "", "parts/sums.py": PART},
    ],
)
def test_a_module_of_a_package_that_imports_it_itself(tmp_path: Path, files: dict[str, str]) -> None:
    script = project(tmp_path, files)
    text = "from parts import sums\n" + SHOWN.replace("share", "sums.share")
    assert status(text, path=script) == [Status.NAMED]
    # Had the function not been found, a sum over rows would be none.
    gathered = text.replace("share(x)", "share(accelerator.gather_for_metrics(x))")
    assert status(gathered, path=script) == [Status.PROVED]


def test_modules_that_import_a_name_from_each_other(tmp_path: Path) -> None:
    files = {"one.py": "from other import share\n", "other.py": "from one import share\n"}
    script = project(tmp_path, files)
    assert validate(f"{HEAD}from one import share\n{SHOWN}", script, KNOWLEDGE).assumptions == []
    assert status(f"from one import share\n{SHOWN}", path=script) == [Status.NAMED]


@pytest.mark.parametrize("first", [".sums", "nowhere.sums"])
def test_the_import_that_finds_the_name(tmp_path: Path, first: str) -> None:
    script = project(tmp_path, {"sums.py": PART})
    text = f"try:\n    from {first} import share\nexcept ImportError:\n    from sums import share\n{SHOWN}"
    assert status(text, path=script) == [Status.NAMED]
    gathered = text.replace("share(x)", "share(accelerator.gather_for_metrics(x))")
    assert status(gathered, path=script) == [Status.PROVED]


STEPS = """
class Meter:
    fixed = 1
    def __init__(self, **options):
        self.__dict__.update(options)
    def take(self, name, value):
        {written}
meter = Meter(rate=0.1, loss_fit=0.0)
names = torch.load("names")
for x, y in loader:
    for name in names:
        meter.take(name, x.sum())
accelerator.print({shown})
"""
WRITTEN = [
    "setattr(self, name, value)",
    'setattr(self, f"loss_{name}", value)',
    'setattr(self, "loss_" + "fit", value)',
    "vars(self)[name] = value",
    "self.__dict__[name] = value",
    "self.__dict__.update({name: value})",
    "self.__dict__.update(loss_fit=value)",
]
SHOWN_FIELDS = [
    "meter.loss_fit",
    'getattr(meter, "loss_fit", 0.0)',
    'getattr(meter, f"loss_{names[0]}", 0.0)',
    'vars(meter)["loss_fit"]',
    "meter.__dict__[names[0]]",
    "[value for key, value in vars(meter).items()]",
]


@pytest.mark.parametrize("written", WRITTEN)
def test_an_attribute_is_written_whose_name_only_the_run_knows(written: str) -> None:
    found = status(STEPS.format(written=written, shown="meter.loss_fit"))
    assert found in ([Status.NAMED], [Status.LOOP])
    same = STEPS.format(written=written, shown="meter.loss_fit").replace("in loader", "in torch.load('same')")
    assert status(same) == [Status.PROVED]


@pytest.mark.parametrize("shown", SHOWN_FIELDS)
def test_an_attribute_is_read_whose_name_only_the_run_knows(shown: str) -> None:
    for written in WRITTEN[:2]:
        assert status(STEPS.format(written=written, shown=shown)) in ([Status.NAMED], [Status.LOOP])


def test_a_name_that_is_known_in_part_leaves_other_attributes_alone() -> None:
    assert status(STEPS.format(written=WRITTEN[1], shown="meter.rate")) == [Status.PROVED]
    assert status(STEPS.format(written=WRITTEN[0], shown="meter.rate")) != [Status.PROVED]


@pytest.mark.parametrize("name", ["", "#made", "[0]"])
def test_a_name_that_no_attribute_has_in_a_script(name: str) -> None:
    written = f"setattr(self, {name!r}, value); setattr(self, name, 0)"
    assert status(STEPS.format(written=written, shown=f"getattr(meter, {name!r})")) in (
        [Status.NAMED],
        [Status.LOOP],
    )


def test_the_default_of_an_attribute_that_is_not_there() -> None:
    text = (
        'total = 0\nfor x, y in loader:\n    total += x.sum()\naccelerator.print(getattr({}, "{}", total))\n'
    )
    meter = STEPS.partition("names =")[0].format(written="pass")
    assert status(meter + text.format("meter", "rate")) == [Status.PROVED]
    assert status(meter + text.format("meter", "fixed")) == [Status.PROVED]
    assert status(meter + text.format("meter", "other")) == [Status.NAMED]
    assert status(text.format("argparse.ArgumentParser().parse_args()", "other")) == [Status.NAMED]


@pytest.mark.parametrize("value", ["args.file", 'getattr(args, "file", None)', "torch.load('options').file"])
def test_an_option_may_be_none(value: str) -> None:
    text = f"args = argparse.ArgumentParser().parse_args()\nif {value} is None:\n    print('none')\n"
    assert status(text, "once") == [Status.NAMED]
    assert status(text.replace(" is None", " is not None"), "once") == [Status.NAMED]
    assert status(text.replace(f"{value} is None", "loader is None"), "once") == []


REGISTRY = """
known = {{}}
class Registry:
    def register(self, name):
        def keep(made):
            known[name] = made
            return made
        return keep
def register(name):
    return Registry().register(name)
registry = Registry()
@{decorator}
class Net(torch.nn.Module):
    def forward(self, x):
        return x @ x.T
net = accelerator.prepare(known[{key}]())
for x, y in loader:
    accelerator.backward(net(x).mean())
"""


@pytest.mark.parametrize("decorator", ['register("net")', 'registry.register("net")'])
@pytest.mark.parametrize("key", ['"net"', "argparse.ArgumentParser().parse_args().net"])
def test_classes_that_a_decorator_keeps(decorator: str, key: str) -> None:
    assert status(REGISTRY.format(decorator=decorator, key=key), "loss") == [Status.NAMED]


ASKED = """
class Meters:
    def __init__(self):
        self.meters = {}
    def update(self, **values):
        for name, value in values.items():
            self.meters[name] = self.meters.get(name, 0) + value
    def __getattr__(self, name):
        if name in self.meters:
            return self.meters[name]
        raise AttributeError(name)
meters = MADE
for x, y in loader:
    meters.update(loss=x.sum())
accelerator.print(meters.loss)
"""


@pytest.mark.parametrize("made", ["Meters()", "type(Meters())()", "Meters().__class__()"])
def test_attributes_that_a_method_gives(made: str) -> None:
    assert status(ASKED.replace("MADE", made)) in ([Status.NAMED], [Status.LOOP])
    same = ASKED.replace("MADE", made).replace("in loader", "in torch.load('same')")
    assert status(same) == [Status.PROVED]
