"""What the engine says of small scripts: branches, calls, classes, containers and the ranks that part."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.heap.interpreter import Interpreter
from accelify.knowledge import Knowledge
from accelify.obligations import Status, Validation, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 1))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
total = 0.0
"""
SHARE = "of the main process's share; take its sum or mean over the ranks (reduce)"


def statuses(text: str, demand: str = "content") -> list[Status]:
    """How the obligations of one demand stand, in the order of the script."""
    return [one.status for one in validate(HEAD + text, None, KNOWLEDGE).obligations if one.demand == demand]


def named(text: str) -> list[str]:
    return [one.message for one in validate(HEAD + text, None, KNOWLEDGE).of(Status.NAMED)]


TOTALS = {
    "a global of a function": (
        "def run():\n    global total\n    for x in loader: total += x.sum().item()\nrun()\n",
        "total",
    ),
    "a closure": (
        "def make():\n"
        "    t = 0.0\n"
        "    def add(v):\n"
        "        nonlocal t\n"
        "        t += v\n"
        "    def get():\n"
        "        return t\n"
        "    return add, get\n"
        "add, get = make()\n"
        "for x in loader: add(x.sum().item())\n",
        "get()",
    ),
    "a property": (
        "class M:\n"
        "    def __init__(self): self.s = 0.0\n"
        "    @property\n"
        "    def value(self): return self.s / 2\n"
        "m = M()\n"
        "for x in loader: m.s += x.sum().item()\n",
        "m.value",
    ),
    "a class method": (
        "class M:\n"
        "    s = 0.0\n"
        "    @classmethod\n"
        "    def add(cls, v): cls.s += v\n"
        "for x in loader: M.add(x.sum().item())\n",
        "M.s",
    ),
    "a class method of an object": (
        "class M:\n"
        "    s = 0.0\n"
        "    @classmethod\n"
        "    def add(cls, v): cls.s += v\n"
        "m = M()\n"
        "for x in loader: m.add(x.sum().item())\n",
        "M.s",
    ),
    "a method of a base": (
        "class A:\n"
        "    def __init__(self): self.s = 0.0\n"
        "    def add(self, v): self.s += v\n"
        "class B(A):\n"
        "    def add(self, v): super().add(v * 2)\n"
        "b = B()\n"
        "for x in loader: b.add(x.sum().item())\n",
        "b.s",
    ),
    "an operator of a class": (
        "class V:\n"
        "    def __init__(self): self.v = 0.0\n"
        "    def __iadd__(self, other):\n"
        "        self.v += other\n"
        "        return self\n"
        "v = V()\n"
        "for x in loader: v += x.sum().item()\n",
        "v.v",
    ),
    "the text of an object": (
        "class M:\n"
        "    def __init__(self): self.s = 0.0\n"
        "    def __str__(self): return str(self.s)\n"
        "m = M()\n"
        "for x in loader: m.s += x.sum().item()\n",
        'f"{m}"',
    ),
    "an object that shows what it stores": (
        "class M:\n"
        "    def __init__(self): self.s = 0.0\n"
        "    def __repr__(self): return str(self.s)\n"
        "m = M()\n"
        "for x in loader: m.s += x.sum().item()\n",
        "m",
    ),
    "a data class": (
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class M:\n"
        "    s: float = 0.0\n"
        "m = M()\n"
        "for x in loader: m.s += x.sum().item()\n",
        "m",
    ),
    "a generator": (
        "def batches():\n    for x in loader:\n        yield x * 2\nfor x in batches(): total += x.sum().item()\n",
        "total",
    ),
    "a generator that adds up": (
        "def batches():\n"
        "    global total\n"
        "    for x in loader:\n"
        "        total += x.sum().item()\n"
        "        yield x\n"
        "for x in batches(): pass\n",
        "total",
    ),
    "a generator of another": (
        "def values():\n    yield from (x.sum().item() for x in loader)\nfor v in values(): total += v\n",
        "total",
    ),
    "a decorated function": (
        "def twice(f):\n"
        "    def inner(*args, **more):\n"
        "        return f(*args, **more) * 2\n"
        "    return inner\n"
        "@twice\n"
        "def loss(x): return x.sum().item()\n"
        "for x in loader: total += loss(x)\n",
        "total",
    ),
    "star arguments": (
        "def add(*args, **more): return args[0] + more['b']\n"
        "for x in loader: total += add(*[x.sum().item()], **{'b': 1})\n",
        "total",
    ),
    "two at once": ("a, b = 0.0, 1\nfor x in loader: a, b = a + x.sum().item(), b\n", "a"),
    "a dictionary": ("d = {'k': 0.0}\nfor x in loader: d['k'] += x.sum().item()\n", "d['k']"),
    "a default dictionary": (
        "from collections import defaultdict\nd = defaultdict(float)\nfor x in loader: d['k'] += x.sum().item()\n",
        "d['k']",
    ),
    "lists of a default dictionary": (
        "from collections import defaultdict\nd = defaultdict(list)\nfor x in loader: d['k'].append(x.sum().item())\n",
        "sum(d['k'])",
    ),
    "a list by another name": ("a = []\nb = a\nfor x in loader: b.append(x.sum().item())\n", "sum(a)"),
    "a method as a value": ("a = []\nput = a.append\nfor x in loader: put(x.sum().item())\n", "sum(a)"),
    "a comprehension": ("", "sum([x.sum().item() for x in loader])"),
    "a map": ("", "sum(list(map(lambda x: x.sum().item(), loader)))"),
    "a branch of options": (
        "if len(loader.dataset) > 5:\n    for x in loader: total += x.sum().item()\n",
        "total",
    ),
    "a try": (
        "try:\n    for x in loader: total += x.sum().item()\nfinally:\n    total = total * 1\n",
        "total",
    ),
}


@pytest.mark.parametrize("kind", TOTALS)
def test_a_total_is_followed(kind: str) -> None:
    loop, figure = TOTALS[kind]
    assert [SHARE in message for message in named(f"{loop}accelerator.print({figure})\n")] == [True]
    if kind not in ("a data class", "the text of an object", "an object that shows what it stores"):
        assert statuses(f"{loop}accelerator.print(accelerator.reduce({figure}, 'sum'))\n") == [Status.PROVED]


LOST = {
    "an object of an unknown class": (
        "import mylib\nm = mylib.Meter()\nfor x in loader: m.update(x.sum().item())\n",
        "m.compute()",
    ),
    "an attribute of such an object": (
        "import mylib\nm = mylib.Meter()\nfor x in loader: m.update(x.sum().item())\n",
        "m.avg",
    ),
    "a list that an unknown function gets": (
        "import mylib\na = []\nfor x in loader: mylib.collect(a, x.sum().item())\n",
        "a",
    ),
    "a dictionary by `get`": ("d = {}\nfor x in loader: d['k'] = d.get('k', 0) + x.sum().item()\n", "d['k']"),
    "lists by `setdefault`": (
        "d = {}\nfor x in loader: d.setdefault('k', []).append(x.sum().item())\n",
        "d['k']",
    ),
    "a length that one way knows": (
        "a = []\nfor x in loader:\n    if len(loader.dataset) > 5: a.extend(x.tolist())\n",
        "len(a)",
    ),
    "a text": ("t = ''\nfor x in loader: t += f'{x.sum()}'\n", "t"),
    "a part of an array": ("t = torch.zeros(3)\nfor x in loader: t[0] += x.sum()\n", "t"),
    "what a write before a return leaves": (
        "class S: v = 0.0\n"
        "def step(x):\n"
        "    S.v += x\n"
        "    if x > 3:\n"
        "        return\n"
        "    S.w = x\n"
        "for x in loader: step(x.sum().item())\n",
        "S.v",
    ),
}


@pytest.mark.parametrize("kind", LOST)
def test_no_write_is_lost(kind: str) -> None:
    loop, figure = LOST[kind]
    assert statuses(f"{loop}accelerator.print({figure})\n") == [Status.NAMED]


def test_an_early_return_keeps_what_was_written() -> None:
    text = (
        "class S: v = 0.0\n"
        "def step(x):\n"
        "    S.v += x\n"
        "    if len(loader.dataset) > 3:\n"
        "        return 1\n"
        "    return 2\n"
        "for x in loader: step(x.sum().item())\n"
    )
    assert [SHARE in message for message in named(f"{text}accelerator.print(S.v)\n")] == [True]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "for x in loader:\n    if x.sum() > 0:\n        accelerator.reduce(x.sum())\n",
            "not reached by all ranks",
        ),
        (
            "for x in loader:\n    accelerator.reduce(x.sum())\n    if x.sum() > 0:\n        break\n",
            "some ranks leave",
        ),
        (
            "def train():\n"
            "    for x in loader:\n"
            "        if x.isnan().any():\n"
            "            return\n"
            "        accelerator.backward(model(x).mean())\n"
            "train()\n",
            "some ranks leave",
        ),
        (
            "for x in loader:\n"
            "    try:\n"
            "        loss = model(x).mean()\n"
            "    except RuntimeError:\n"
            "        continue\n"
            "    accelerator.backward(loss)\n",
            "not reached by all ranks",
        ),
        (
            "def save():\n"
            "    if not accelerator.is_main_process:\n"
            "        return\n"
            "    accelerator.wait_for_everyone()\n"
            "save()\n",
            "not reached by all ranks",
        ),
        (
            "if accelerator.process_index > 0:\n    accelerator.wait_for_everyone()\n",
            "not reached by all ranks",
        ),
    ],
)
def test_what_some_ranks_do_alone(text: str, found: str) -> None:
    assert any(found in message for message in named(text))


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_handler_that_raises_on_one_of_its_ways(goes_on: bool) -> None:
    text = (
        "for x in loader:\n"
        "    try:\n"
        "        accelerator.backward(model(x).mean())\n"
        "    except RuntimeError as error:\n"
        "        if 'out of memory' in str(error):\n"
        f"            {'continue' if goes_on else 'accelerator.print(error)'}\n"
        "        raise\n"
    )
    assert any("gets over its error" in message for message in named(text)) is goes_on


@pytest.mark.parametrize(
    "test",
    [
        "accelerator.is_main_process",
        "accelerator.process_index == 0",
        "accelerator.process_index < 1",
        "accelerator.process_index <= 0",
        "accelerator.is_main_process and total == 0",
        "not accelerator.process_index != 0",
    ],
)
def test_tests_for_the_main_process(test: str) -> None:
    assert statuses(f"if {test}:\n    print('a')\n", "once") == [Status.PROVED]


@pytest.mark.parametrize(
    "test", ["accelerator.process_index != 0", "accelerator.process_index >= 1", "total == 0"]
)
def test_tests_for_other_processes(test: str) -> None:
    assert statuses(f"if {test}:\n    print('a')\n", "once") == [Status.NAMED]


def test_the_main_process_returns_last() -> None:
    assert statuses(
        "def f():\n    if not accelerator.is_main_process:\n        return\n    print('a')\nf()\n", "once"
    ) == [Status.PROVED]


def test_the_main_process_first() -> None:
    text = "import os\nwith accelerator.main_process_first():\n    os.makedirs('a')\n"
    assert statuses(text, "once") == [Status.PROVED]
    assert statuses("import os\nos.makedirs('a')\n", "once") == [Status.NAMED]


@pytest.mark.parametrize(
    "text",
    [
        "def shown(f):\n    def inner(*a):\n        print(f(*a))\n    return inner\n@shown\ndef g(x): return 1\ng(2)\n",
        "class C:\n    def __enter__(self): return self\n    def __exit__(self, *a): print('end')\nwith C(): pass\n",
        "for x in loader:\n    pass\nelse:\n    print('done')\n",
        "if __name__ == '__main__':\n    print('done')\n",
    ],
)
def test_effects_are_reached(text: str) -> None:
    assert statuses(text, "once") == [Status.NAMED]


def test_recursion_is_listed() -> None:
    text = (
        "def f(x, n):\n    return x if n == 0 else f(x, n - 1) * 2\n"
        "for x in loader: total += f(x.sum(), torch.load('n'))\n"
    )
    result: Validation = validate(f"{HEAD}{text}accelerator.print(total)\n", None, KNOWLEDGE)
    assert [one.text for one in result.unread] == ["`f` calls itself"]
    assert result.of(Status.NAMED)


def test_a_budget_that_is_used_up_is_listed() -> None:
    engine = Interpreter(None, KNOWLEDGE)
    engine.run.budget = 9
    run = engine.start(f"{HEAD}print(1)\nprint(2)\n")
    assert [one.text for one in run.unread.values()] == ["the budget of the analysis is used up"]
    assert [event.line for event in run.events if event.kind == "terminal.write"] == [8]


def test_modules_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("from .meters import Meter\n")
    (tmp_path / "lib" / "meters.py").write_text(
        "class Meter:\n"
        "    def __init__(self): self.s = 0.0\n"
        "    def add(self, v):\n"
        "        self.s += v\n"
        "        print(self.s)\n"
    )
    text = "from lib import Meter\nimport lib.meters as meters\nm = Meter()\nfor x in loader: m.add(x.sum().item())\n"
    script = tmp_path / "train.py"
    script.write_text(f"{HEAD}{text}accelerator.print(m.s, meters.Meter)\n")
    result = validate(script.read_text(), script, KNOWLEDGE)
    assert {(one.path, one.line, one.sink, one.demand) for one in result.of(Status.NAMED)} == {
        ("lib/meters.py", 5, "terminal.write", "once"),
        ("train.py", 12, "terminal.write", "content"),
    }


ROWS = """\
for x, y in loader:
    p, y = accelerator.gather_for_metrics((model(x), y))
{lines}
"""


@pytest.mark.parametrize(
    ("lines", "figure"),
    [
        ("    labels = library.labels(p)\n    total += (labels - y).abs().sum().item()", "total / 64"),
        (
            "    for i in range(y.shape[0]):\n"
            "        parts = []\n"
            "        for part in range(4):\n"
            "            both = (p[i] == part).sum()\n"
            "            parts.append(1 if both == 0 else float(both))\n"
            "        seen.append(np.mean(parts))",
            "np.mean(seen)",
        ),
    ],
)
def test_figures_of_gathered_rows(lines: str, figure: str) -> None:
    text = (
        f"import numpy as np, library\nseen = []\n{ROWS.format(lines=lines)}\naccelerator.print({figure})\n"
    )
    assert statuses(text) == [Status.PROVED]


def test_an_attribute_by_a_name_that_is_not_known() -> None:
    text = (
        "import sys\n"
        "class Losses: pass\n"
        "losses = Losses()\n"
        "losses.d = 0.0\n"
        "for x in loader: losses.d += x.sum().item()\n"
        "accelerator.print(getattr(losses, sys.argv[1], 0.0))\n"
    )
    (message,) = named(text)
    assert message.startswith(f"printed: {SHARE}")


def test_a_bar_over_a_number_of_rounds() -> None:
    text = (
        "from tqdm import trange\n"
        "bar = trange(3, disable=not accelerator.is_local_main_process)\n"
        "for epoch in bar:\n"
        "    for x, y in loader: accelerator.backward((model(x) - y).mean())\n"
    )
    assert named(text) == []


def test_a_script_that_is_nested_deeply_is_read() -> None:
    text = f"{HEAD}print(total)\nx = {' + '.join(['total'] * 900)}\nprint(x)\n"
    found = validate(text, Path("deep.py"), KNOWLEDGE)
    first = HEAD.count("\n") + 1
    assert not found.unread
    assert [one.line for one in found.of(Status.NAMED)] == [first, first + 2]


def test_models_of_rounds_with_an_accelerator_each() -> None:
    made = "model = accelerator.prepare(torch.nn.Linear(2, 1))"
    assert len(named(f"for trial in range(9):\n    {made}\n")) == 1
    assert named(f"for trial in range(9):\n    accelerator = Accelerator()\n    {made}\n") == []


def test_a_decorator_that_may_be_one_of_several() -> None:
    text = (
        "import random\n"
        "def one(f): return f\n"
        "def other(f): return f\n"
        "chosen = one if len(DataLoader([1])) > 3 and random.random() > 0.5 else other\n"
        "@chosen\n"
        "def measure(x): return x.sum()\n"
        "for x in loader: print(measure(x))\n"
    )
    assert not validate(f"{HEAD}{text}", None, KNOWLEDGE).unread
