"""Names that are used again."""

from __future__ import annotations

import ast

import pytest

from accelify.analysis.planning.plan import Plan
from accelify.analysis.statements.reaching_assignments import reaching_assignments
from tests.analysis.support import LOADER, LOOP, MODEL, OPTIMIZER, model_of


def values(body: str) -> set[str] | None:
    """What the assignments give that reach `use(a)`."""
    script = model_of(body)
    (read,) = [
        call.args[0]
        for call in script.tree.nodes(ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == "use"
    ]
    assert isinstance(read, ast.Name)
    found = reaching_assignments(script, read)
    return None if found is None else {script.tree.segment(stmt.value) for stmt in found}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("a = 1\na = 2\nuse(a)\na = 3", {"2"}),
        ("a = 1\nif x:\n    a = 2\nuse(a)", {"1", "2"}),
        ("a = 1\nif x:\n    a = 2\n    use(a)", {"2"}),
        ("a = 1\nfor i in x:\n    use(a)\n    a = 2", {"1", "2"}),
        ("a = 1\nfor i in x:\n    a = 3\n    use(a)\n    a = 2", {"3"}),
        ("a = 1\ntry:\n    a = 2\nexcept E:\n    use(a)", {"1", "2"}),
        ("def f(x):\n    a = 1\n    a = 2\n    use(a)", {"2"}),
    ],
)
def test_the_last_one_counts(body: str, wanted: set[str]) -> None:
    assert values(body) == wanted


@pytest.mark.parametrize(
    "body",
    [
        "a = 1\ndef f():\n    use(a)\na = 2",
        "a = 1\ndef f():\n    global a\n    a = 2\nf()\nuse(a)",
        "a, b = 1, 2\nuse(a)",
        "for a in x:\n    use(a)",
        "if x:\n    a = 1\nuse(a)",
        "def f(a):\n    use(a)",
    ],
)
def test_where_it_cannot_be_told(body: str) -> None:
    assert values(body) is None


def test_a_loader_made_again_to_look_at_the_data_is_not_prepared() -> None:
    again = "loader = DataLoader(data, batch_size=600)\nfor x, y in loader:\n    break\nprint(x)\n"
    plan = Plan(model_of(MODEL + OPTIMIZER + LOADER + LOOP + again))
    assert [site.names() for site in plan.sites] == [["model", "optimizer", "loader"]]
    assert [plan.tree.segment(site.after) for site in plan.sites] == [LOADER.strip()]


def test_loaders_made_again_to_train_with_are_prepared_again() -> None:
    grown = "for epoch in range(3):\n    if epoch:\n        loader = DataLoader(data, batch_size=9)\n"
    inner = LOOP.replace("\n", "\n    ").strip()
    plan = Plan(model_of(MODEL + OPTIMIZER + LOADER + grown + f"    {inner}\n"))
    assert [site.names() for site in plan.sites] == [["model", "optimizer", "loader"], ["loader"]]
    again = "loader = DataLoader(data, batch_size=9)\n"
    plan = Plan(model_of(MODEL + OPTIMIZER + LOADER + LOOP + again + LOOP))
    assert [site.names() for site in plan.sites] == [["model", "optimizer", "loader"], ["loader"]]
