"""Where the Accelerator is made and what is prepared where."""

from __future__ import annotations

import textwrap

import pytest

from accelify.analysis.plan import Plan
from tests.analysis.support import LOADER, LOOP, MODEL, OPTIMIZER, model_of

WHOLE = MODEL + OPTIMIZER + LOADER + LOOP
MAIN = f"def main():\n{textwrap.indent(WHOLE, '    ')}\nmain()\n"


def prepared(plan: Plan) -> list[str]:
    return [item.holder.name for site in plan.sites for item in site.items]


@pytest.mark.parametrize(("body", "root"), [(WHOLE, ""), (MAIN, "main")])
def test_together_behind_the_last(body: str, root: str) -> None:
    plan = Plan(model_of(body))
    assert plan.blockers == []
    assert prepared(plan) == ["model", "optimizer", "loader"]
    assert plan.tree.segment(plan.sites[-1].after) == LOADER.strip()
    assert plan.anchor is not None
    assert plan.anchor.root.name == root


def test_loaded_weights_come_before_prepare() -> None:
    load = "model.load_state_dict(torch.load('m.pt'))\n"
    plan = Plan(model_of(MODEL + OPTIMIZER + LOADER + load + LOOP))
    assert [plan.tree.segment(site.after) for site in plan.sites] == [load.strip()]


@pytest.mark.parametrize("result", ["model", "model, 1"])
def test_what_a_function_makes_and_trains_is_prepared_in_there(result: str) -> None:
    inside = textwrap.indent(MODEL + OPTIMIZER + LOOP + f"return {result}\n", "    ")
    target = "net, n" if "," in result else "net"
    plan = Plan(model_of(LOADER + f"def train(loader):\n{inside}\n{target} = train(loader)\nprint(net)\n"))
    assert plan.blockers == []
    assert {site.scope.name: site.names() for site in plan.sites} == {
        "": ["loader"],
        "train": ["model", "optimizer"],
    }


def test_the_accelerator_waits_for_its_flags() -> None:
    flags = "device = torch.device('cuda' if args.cuda else 'cpu')\n"
    plan = Plan(model_of(flags + WHOLE))
    assert plan.arguments == {"cpu": "not args.cuda"}
    assert plan.anchor is not None
    parsed = plan.tree.module.body[8]
    assert plan.tree.segment(parsed) == "args = parser.parse_args()"
    assert plan.anchor.offset >= plan.tree.end(parsed)


def test_nothing_to_train_is_a_blocker() -> None:
    (blocker,) = Plan(model_of("x = torch.zeros(2, requires_grad=True)\nx.sum().backward()\n")).blockers
    assert blocker.code == "ACC003"
