"""Which evaluation loops can be shared out, and what is gathered for them."""

from __future__ import annotations

import pytest

from accelify.analysis.metrics.evaluation import evaluation_loops
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.planning.plan import Plan
from tests.analysis.support import LOADER, LOOP, MODEL, OPTIMIZER, model_of

TRAIN = MODEL + OPTIMIZER + LOADER + "other = DataLoader(rest)\n" + LOOP


def loops(body: str) -> list[EvaluationLoop]:
    return evaluation_loops(model_of(TRAIN + body))


def test_a_training_loop_is_none() -> None:
    assert loops("") == []


def test_outputs_and_targets() -> None:
    (found,) = loops(
        "hits = 0\nfor x, y in other:\n    out = model(x)\n    hits += (out == y).sum().item()\n"
    )
    assert found.problem is None
    assert found.gathered == ["out", "y"]


@pytest.mark.parametrize("call", ["F.mse_loss(model(x), y)", "F.mse_loss(model(x), y, reduction='sum')"])
def test_a_forward_inside(call: str) -> None:
    (found,) = loops(f"total = 0\nfor x, y in other:\n    total += {call}.item()\n")
    assert found.problem is None
    assert len(found.inline) == 1
    assert found.gathered == ["y"]


def test_a_look_at_the_data() -> None:
    (found,) = loops("for x, y in other:\n    print(x.shape)\n    break\n")
    assert found.only_looks


def test_a_carried_state() -> None:
    (found,) = loops("h = 0\nfor x, y in other:\n    h = model(x) + h\nprint(h)\n")
    assert found.problem is not None


HELPER = """\
def accuracy(loader):
    good = 0
    for x, y in loader:
        good += (model(x).argmax(1) == y).sum().item()
    return good
"""
TWO = (
    MODEL
    + OPTIMIZER
    + LOADER
    + "other = DataLoader(data)\n"
    + LOOP
    + HELPER
    + "print(accuracy(loader), accuracy(other))\n"
)


def test_a_helper_gathers_what_all_of_its_loaders_give_or_nothing() -> None:
    plan = Plan(model_of(TWO))
    assert sorted(n for site in plan.sites for n in site.names()) == ["loader", "model", "optimizer", "other"]
    assert all(e.problem is None for e in plan.evaluations)
    first = "for x, y in other:\n    break\nprint(x.shape)\n"
    plan = Plan(model_of(TWO + first))
    assert sorted(n for site in plan.sites for n in site.names()) == ["loader", "model", "optimizer", "other"]
    whole = "total = 0\nfor x, y in other:\n    total += mystery(x)\n"
    plan = Plan(model_of(TWO + whole))
    assert [site.names() for site in plan.sites] == [["model", "optimizer", "loader"]]
    assert all(e.problem is not None for e in plan.evaluations)


COUNTED = "n = 0\nfor x, y in rest_loader:\n    out = model(x)\n    n += (out == y).sum().item()\n"
MADE = """\
def make(data, **more):
    return DataLoader(data, batch_size=8, **more)
def load(data, drop, last=True):
    return DataLoader(data, batch_size=8, drop_last=last if drop else False)
def given(data, last=True):
    return DataLoader(data, batch_size=8, drop_last=last)
"""


@pytest.mark.parametrize(
    ("loader", "drops"),
    [
        ("DataLoader(rest, batch_size=8, drop_last=True)", True),
        ("DataLoader(rest, 8, False, None, None, 0, None, False, True)", True),
        ("DataLoader(rest, batch_sampler=BatchSampler(SequentialSampler(rest), 8, drop_last=True))", True),
        ("given(rest)", True),
        ("given(rest, last=True)", True),
        ("given(rest, False)", False),
        ("DataLoader(rest, batch_size=8, drop_last=False)", False),
        ("load(rest, drop)", False),
        ("make(rest)", False),
    ],
)
def test_batches_that_several_processes_would_drop(loader: str, drops: bool) -> None:
    body = f"rest_loader = {loader}\n{COUNTED}"
    model = model_of(MADE + TRAIN + body)
    (found,) = evaluation_loops(model)
    assert ("drop_last=True would leave out" in (found.problem or "")) is drops
    assert evaluation_loops(model, "total")[0].problem is None


def test_batches_of_a_training_loader_are_dropped_all_the_same() -> None:
    dropping = TWO.replace("DataLoader(data)", "DataLoader(data, batch_size=8, drop_last=True)")
    assert dropping != TWO
    alone = "n = 0\nfor x, y in other:\n    out = model(x)\n    n += (out == y).sum().item()\n"
    plan = Plan(model_of(dropping + alone))
    assert sorted(n for site in plan.sites for n in site.names()) == ["loader", "model", "optimizer", "other"]
    assert [(e.problem, e.loses_batches) for e in plan.evaluations] == [(None, True)] * 2


@pytest.mark.parametrize(
    ("body", "batches"), [("kept.append(x)\n    out = model(x)", 1), ("kept.append(x)", 2)]
)
def test_what_was_found_is_no_loader_and_batches_put_by_are(body: str, batches: int) -> None:
    found = loops(f"kept = []\nfor x, y in other:\n    {body}\nfor x in kept:\n    print(model(x))\n")
    assert len(found) == batches
