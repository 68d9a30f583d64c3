"""Lengths of loaders taken before prepare."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import DEFAULTS, check_noop, codes, convert, frame

BUILD = """
loader = DataLoader(data, batch_size=8)
steps = {value}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize("value", ["len(data)", "len(loader.dataset)", "8"])
def test_other_lengths(value: str) -> None:
    check_noop("build", BUILD.format(value=value), "ACC401")


def test_after_prepare() -> None:
    check_noop("ready", "steps = len(loader)", "ACC401")


def test_the_length_that_a_schedule_is_made_with_is_right() -> None:
    made = "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 3)"
    assert "ACC401" not in codes(convert(ready=made, update="optimizer.step()\nscheduler.step()"))


def test_before_prepare() -> None:
    again = "for x, y in train:\n    F.cross_entropy(model(x), y).backward()\nprint(steps)"
    build = BUILD.replace("loader =", "train =").format(value="len(train)")
    (finding,) = [f for f in convert(build=build, end=again).remaining if f.code == "ACC401"]
    assert "len(train)" in finding.message


@pytest.mark.parametrize(
    ("before", "behind", "found"),
    [
        ("steps = len(train)", "", False),
        ("steps, size = len(train), 8\nhalf = steps // 2", "print(size)", False),
        ("class Run:\n    def __init__(self):\n        self.steps = 3 * len(train)\nrun = Run()", "", False),
        ("steps = len(train)\nsteps += 1", "print('a')", False),
        ("steps, size = len(train), 8\nhalf = steps // 2", "print(half)", True),
        (
            "class Run:\n    def __init__(self):\n        self.steps = 3 * len(train)\nrun = Run()",
            "print(run.steps)",
            True,
        ),
        (
            "class Run:\n    def __init__(self):\n        self.steps = len(train)\nrun = Run()",
            "getattr(run, 'steps')",
            True,
        ),
        ("steps = range(len(train))", "", True),
        ("def show():\n    print(steps)\nsteps = len(train)", "show()", True),
        ("steps = len(train)", "print(globals())", True),
    ],
)
def test_a_length_that_nobody_reads(before: str, behind: str, found: bool) -> None:
    build = BUILD.replace("loader =", "train =").replace("steps = {value}", before)
    again = f"for x, y in train:\n    F.cross_entropy(model(x), y).backward()\n{behind}"
    assert ("ACC401" in codes(convert(build=build, end=again))) is found


@pytest.mark.parametrize(
    ("steps", "rate", "found"),
    [
        ("3 * (len(data) // batch_size)", "0.1 * (1 - n / steps)", True),
        ("len(loader.dataset) / batch_size", "0.1 * (1 - n / steps)", True),
        ("3 * (len(data) // 10)", "0.1 * (1 - n / steps)", False),
        ("3 * (len(data) // batch_size)", "0.1 * (1 - n / 100)", False),
    ],
)
def test_a_learning_rate_by_hand_from_the_number_of_samples(steps: str, rate: str, found: bool) -> None:
    batch = f"n += 1\nlr = {rate}\nset_rate(optimizer, lr)"
    ready = f"n, steps = 0, 1\nsteps = {steps}"
    imports = "from rates import set_rate"
    conversion = convert(imports=imports, setup="batch_size = 8", ready=ready, batch=batch)
    assert ("ACC401" in {f.code for f in conversion.remaining}) == found


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("model.update_lr({})", True),
        ("adjust_learning_rate(optimizer, total={})", True),
        ("model.lr.append({})", False),
        ("model.filter({})", False),
    ],
)
def test_a_function_that_is_named_for_a_learning_rate(call: str, found: bool) -> None:
    setup = "from nets import Net, adjust_learning_rate\nbatch_size = 8"
    build = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    batch = call.format("3 * len(loader.dataset) // batch_size")
    conversion = convert(setup=setup, build=build, batch=batch)
    assert ("ACC401" in {f.code for f in conversion.remaining}) == found


@pytest.mark.parametrize("steps", ["3 * (len(data) // batch_size)", "len(loader.dataset) / batch_size"])
def test_a_learning_rate_by_the_count_of_steps_is_named_once(steps: str) -> None:
    """To count the steps of all processes and to divide their number as well would be once too much."""
    batch = "n += 1\nfor group in optimizer.param_groups:\n    group['lr'] = 0.1 * (1 - n / steps)"
    conversion = convert(setup="batch_size = 8", ready=f"n, steps = 0, 1\nsteps = {steps}", batch=batch)
    assert {f.code for f in conversion.remaining} & {"ACC401", "ACC407"} == {"ACC407"}


HELPERS = {
    "in another function": """
        def write(optimizer, value):
            for group in optimizer.param_groups:
                group['lr'] = value
        def set_rate(optimizer, n, rounds):
            far = n / rounds
            write(optimizer, 0.1 * (1 - far))
    """,
    "by keyword": """
        def set_rate(optimizer, n, more=1, *, rounds=1):
            optimizer.param_groups[0]['lr'] = 0.1 * (1 - n / rounds)
    """,
    "by a class": """
        class Cosine:
            def __init__(self, optimizer, rounds):
                self.optimizer, self.rounds = optimizer, rounds
            def step(self, n):
                far = n / self.rounds
                self.optimizer.param_groups[0]['lr'] = 0.1 * (1 - far)
        def set_rate(optimizer, n, rounds):
            Cosine(optimizer, rounds).step(n)
    """,
}
USES = {
    "only shown": "def set_rate(optimizer, n, rounds):\n    print(n / rounds)\n",
    "another argument": "def set_rate(optimizer, n, rounds):\n    optimizer.param_groups[0]['lr'] = 0.1 / n\n",
}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("helper", "found"), [*[(h, True) for h in HELPERS.values()], *[(u, False) for u in USES.values()]]
)
def test_a_learning_rate_that_a_function_sets(
    tmp_path: Path, helper: str, found: bool, elsewhere: bool
) -> None:
    text, imports = textwrap.dedent(helper), ""
    if elsewhere:
        (tmp_path / "helper.py").write_text(text)
        text, imports = "", "from helper import *"
    given = "rounds=len(data) // batch_size" if "*" in helper else "3 * (len(data) // batch_size)"
    script = frame(imports=imports, setup=f"{text}batch_size = 8", batch=f"set_rate(optimizer, i, {given})")
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    # What sets the group's rate itself is named for its count of steps already.
    named = {"ACC407"} if found or "param_groups" in helper else set()
    assert codes(conversion) & {"ACC401", "ACC407"} == named


def test_a_number_that_is_divided_by_the_processes_is_right() -> None:
    batch = "optimizer.param_groups[0]['lr'] = 0.1 * (1 - i / (len(data) // batch_size // accelerator.num_processes))"
    build = "from accelify.runtime import Accelerator\naccelerator = Accelerator()\n"
    text = frame(setup="batch_size = 8", batch=batch, build=build + DEFAULTS["build"])
    assert "ACC401" not in {f.code for f in convert_source(Source.from_text(text)).remaining}


@pytest.mark.parametrize(("behind", "found"), [("", False), ("print(steps)", True)])
def test_a_length_that_nobody_reads_in_the_modules_of_a_project(
    tmp_path: Path, behind: str, found: bool
) -> None:
    trainer = """
    import torch
    from torch import nn
    class Trainer:
        def __init__(self, model, optimizer, loader):
            self.model, self.optimizer, self.loader = model, optimizer, loader
        def train(self):
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
    """
    main = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from trainer import Trainer
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8)
    steps = len(loader)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, optimizer, loader)
    trainer.train()
    """
    (tmp_path / "trainer.py").write_text(textwrap.dedent(trainer))
    (tmp_path / "main.py").write_text(textwrap.dedent(main) + behind)
    conversions = convert_project(Source.read(tmp_path / "main.py"))
    assert {c.status for c in conversions} == {"converted"}
    assert any("ACC401" in codes(c) for c in conversions) is found
