"""What was gone through is not gone through again where it reads the same, and is where it does not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from accelify.domains.placement import OWN
from accelify.heap.containers import array_of
from accelify.heap.store import Store
from accelify.heap.values import Container, Value
from accelify.knowledge import Knowledge
from accelify.obligations import Status, Validation, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
"""


def found(text: str) -> Validation:
    return validate(HEAD + text, None, KNOWLEDGE)


def statuses(text: str, demand: str) -> list[Status]:
    return [one.status for one in found(text).obligations if one.demand == demand]


def nested(depth: int) -> str:
    text, indent = "def run():\n", "    "
    for level in range(depth):
        text += f"{indent}total_{level} = 0\n{indent}for part_{level} in range(3):\n"
        indent += "    "
    for level in reversed(range(depth)):
        text += f"{indent}total_{level} += float(torch.ones(2).sum())\n{indent}print(total_{level})\n"
        indent = indent[:-4]
    return f"{text}    return total_0\nrun()\n"


def test_loops_in_each_other_cost_as_much_as_their_lines() -> None:
    steps = [found(nested(depth)).steps for depth in (2, 4, 8)]
    assert steps[2] - steps[1] < 3 * (steps[1] - steps[0])


def test_calls_in_each_other_cost_as_much_as_their_lines() -> None:
    def text(depth: int) -> str:
        parts = ["def step_0(x):\n    return x + 1\n"]
        parts += [
            f"def step_{n}(x):\n    y = step_{n - 1}(x)\n    return y + step_{n - 1}(x)\n"
            for n in range(1, depth)
        ]
        return "".join(parts) + f"for x, y in loader:\n    z = step_{depth - 1}(x)\n"

    assert found(text(16)).steps < 2 * found(text(8)).steps


def test_containers_that_are_reached_on_many_ways_are_looked_into_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels = [[Container("list", Store()) for _ in range(3)] for _ in range(5)]
    for around, inside in pairwise(levels):
        for one in around:
            one.fields["[]"] = Value(refs=tuple(inside))
    levels[-1][-1].fields["[]"] = Value(OWN)
    looked: list[Container] = []

    def looked_into(container: Container) -> dict[str, Value]:
        looked.append(container)
        return container.fields

    monkeypatch.setattr(Container, "looked_into", looked_into)
    assert array_of(Value(refs=tuple(levels[0]))) == OWN
    assert len(looked) == 15


def test_a_helper_that_many_places_call() -> None:
    def text(places: int) -> str:
        helper = "".join(f"    out.append(x * {n} + number)\n" for n in range(20))
        calls = "".join(f"    z = helper(x, {n})\n" for n in range(places))
        return f"def helper(x, number):\n    out = []\n{helper}    return out\nfor x, y in loader:\n{calls}"

    assert found(text(300)).steps - found(text(150)).steps < 2 * 150


@pytest.mark.parametrize(("after", "expected"), [("", Status.PROVED), ("show()\n", Status.NAMED)])
def test_a_call_reads_an_object_that_changed(after: str, expected: Status) -> None:
    text = f"""
class Meter:
    def __init__(self):
        self.sum = 0
    def update(self, value):
        self.sum += value
meter = Meter()
def show():
    accelerator.print(meter.sum)
show()
for x, y in loader:
    meter.update(model(x).mean().item())
{after}"""
    assert statuses(text, "content") == [expected]


def test_a_call_does_again_what_it_did_under_a_guard() -> None:
    show = "def show():\n    print('epoch')\n"
    guarded = "if accelerator.is_main_process:\n    show()\n"
    assert statuses(show + guarded, "once") == [Status.PROVED]
    assert statuses(show + guarded + "show()\n", "once") == [Status.NAMED]
    assert statuses(show + "def both():\n    show()\n" + guarded + "both()\nboth()\n", "once") == [
        Status.NAMED
    ]


@pytest.mark.parametrize(
    ("begins", "status"), [("[]", Status.NAMED), ("[accelerator.gather(torch.ones(2))]", Status.NAMED)]
)
def test_a_call_writes_again_into_what_it_gets(begins: str, status: Status) -> None:
    text = f"""
def add(into, value):
    into.append(value)
values = {begins}
for epoch in range(2):
    add(values, 1)
    for x, y in loader:
        add(values, model(x).mean().item())
accelerator.print(sum(values))
"""
    assert statuses(text, "content") == [status]


def test_a_function_that_is_replaced() -> None:
    text = """
def value():
    return 1
def share():
    return torch.randn(2) * accelerator.process_index
def show():
    accelerator.print(value())
show()
"""
    assert statuses(text, "content") == [Status.PROVED]
    assert statuses(f"{text}value = share\nshow()\n", "content") == [Status.NAMED]
    assert statuses(f"{text}if torch.load('c'):\n    value = share\nshow()\n", "content") == [Status.NAMED]


def test_a_name_that_is_bound_after_a_call() -> None:
    text = """
def show():
    accelerator.print(count)
if torch.load("c"):
    show()
count = accelerator.process_index
show()
"""
    assert statuses(text, "content") == [Status.NAMED]


def test_a_variable_around_that_changes() -> None:
    text = """
def run():
    count = 1
    def show():
        accelerator.print(count)
    show()
    count = accelerator.process_index
    show()
run()
"""
    assert statuses(text, "content") == [Status.NAMED]


def test_a_total_of_a_round_in_a_helper() -> None:
    text = """
def add(state, value):
    state["total"] = state["total"] + value
state = {"total": 0}
for epoch in range(2):
    for x, y in loader:
        add(state, model(x).mean().item())
accelerator.print(state["total"])
"""
    assert statuses(text, "content") == [Status.NAMED]


def test_objects_of_two_calls_are_two() -> None:
    text = """
class Meter:
    def __init__(self):
        self.sum = 0
def meter():
    return Meter()
first = meter()
second = meter()
for x, y in loader:
    first.sum += model(x).mean().item()
accelerator.print(second.sum)
"""
    assert statuses(text, "content") == [Status.PROVED]
    assert statuses(text.replace("second.sum)", "first.sum)"), "content") == [Status.NAMED]


def test_models_of_more_places_than_are_told_apart() -> None:
    layers = "".join(f"        self.part_{n} = Part({n})\n" for n in range(40))
    calls = "".join(f"        x = self.part_{n}(x)\n" for n in range(40))
    text = f"""
class Part(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(size, size)
    def forward(self, x):
        return self.layer(x)
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
{layers}
    def forward(self, x):
{calls}
        return x
whole = accelerator.prepare(Whole())
for x, y in loader:
    loss = whole(x).mean()
    accelerator.backward(loss)
"""
    validation = found(text)
    assert [one.status for one in validation.obligations if one.demand == "loss"] == [Status.PROVED]
    # The places of 40 more parts take their own lines alone.
    assert validation.steps < 6 * len(text.splitlines())


def trained_on(filled: str, taken: str) -> list[Status]:
    text = f"""\
made = [DataLoader(torch.load("e"), batch_size=6) for _ in range(3)]
other = made
{filled}
optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 0.1))
for x, y in {taken}:
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
"""
    return statuses(text, "loss")


def test_a_list_that_is_filled_anew_where_it_is_has_the_new_elements_for_all_its_names() -> None:
    anew = "made[:] = [accelerator.prepare(one) for one in made]"
    assert trained_on(anew, "other[1]") == [Status.PROVED]
    assert trained_on(anew.replace("made[:]", "made"), "other[1]") == [Status.NAMED]
    assert trained_on(anew.replace("made[:]", "made[1:]"), "other[0]") == [Status.NAMED]


def test_attributes_of_attributes_of_several_objects_are_one_method_each() -> None:
    text = f"""
import unknown
class Samples(unknown.Sampler):
    def __init__(self, inner):
        self.inner = inner
first, second = Samples(1), Samples(2)
chosen = first if unknown.asks() else second
print(Samples(chosen{".sampler" * 40}).inner)
"""
    # Each way to them taken apart, it would be more than 2 ** 40.
    assert [one.demand for one in found(text).obligations][-1:] == ["once"]


def test_containers_that_are_looked_into_are_taken_from_the_budget() -> None:
    rows = ", ".join(f"[unknown.of({n})]" for n in range(50))
    text = f"import unknown\nrows = [{rows}]\n" + "print(rows)\n" * 20
    assert found(text).steps > 15 * 50
