"""Where the Accelerator is made and what is prepared where."""

from __future__ import annotations

import textwrap

import pytest

from accelify.analysis.planning.plan import Plan
from tests.analysis.support import LOADER, LOOP, MODEL, OPTIMIZER, model_of
from tests.transforms.support import settled_source

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


FACTORY = "def build():\n    return nn.Linear(4, 2)\n"


@pytest.mark.parametrize(
    ("second", "names"),
    [
        ("other.load_state_dict(torch.load('m.pt'))\nother.eval()\nprint(other(x))\n", ["model"]),
        ("other.load_state_dict(torch.load('m.pt'))\nprint(other(x))\n", ["model", "other"]),
        (
            "other.load_state_dict(torch.load('m.pt'))\nother.eval()\nkept = [other]\n",
            ["model", "other"],
        ),
        (
            "other.load_state_dict(torch.load('m.pt'))\nother.eval()\nmove(other.parameters())\n",
            ["model", "other"],
        ),
    ],
)
def test_a_second_model_of_a_factory_that_is_only_evaluated_is_not_prepared(
    second: str, names: list[str]
) -> None:
    build = FACTORY + "model = build()\n"
    other = "other = build().cuda()\n" + second
    plan = Plan(model_of(build + OPTIMIZER + LOADER + LOOP + other))
    assert [name for name in prepared(plan) if name in ("model", "other")] == names


def test_a_teacher_of_the_students_making_stays_on_its_device() -> None:
    teacher = (
        "other = build()\nother.load_state_dict(torch.load('m.pt'))\nother = other.cuda()\nother.eval()\n"
    )
    loop = LOOP.replace("model(x)", "model(x) - other(x)")
    text = model_of(FACTORY + teacher + "model = build().cuda()\n" + OPTIMIZER + LOADER + loop).tree.text
    converted = settled_source(text).new_text
    assert "other = other.to(accelerator.device)" in converted
    assert "\nmodel = build()\n" in converted
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in converted


@pytest.mark.parametrize(
    ("factory", "moved"),
    [
        ("net = net.cuda()\n    ", "net = net.to(accelerator.device)\n    return net"),
        ("net.to('cuda')\n    ", "net.to(accelerator.device)\n    return net"),
    ],
)
def test_a_factory_that_moves_makes_the_teacher_as_well(factory: str, moved: str) -> None:
    """Prepare places the student alone."""
    made = f"def build():\n    net = nn.Linear(3, 1)\n    {factory}return net\n"
    teacher = "other = build()\nother.load_state_dict(torch.load('m.pt'))\nother.eval()\n"
    loop = LOOP.replace("model(x)", "model(x) - other(x)")
    text = model_of(made + teacher + "model = build()\n" + OPTIMIZER + LOADER + loop).tree.text
    converted = settled_source(text).new_text
    assert moved in converted
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in converted


@pytest.mark.parametrize(
    ("factory", "moved"),
    [
        ("net = net.cuda()\n    ", "net = net.to(accelerator.device)"),
        ("net = nn.DataParallel(net).cuda()\n    ", "net = net.to(accelerator.device)"),
    ],
)
@pytest.mark.parametrize(
    ("others", "stays"),
    [
        ("others = [build() for _ in range(2)]\n", True),
        ("others = {k: build() for k in 'ab'}\n", True),
        ("", False),
    ],
)
def test_a_factory_that_moves_makes_several_others(
    factory: str, moved: str, others: str, stays: bool
) -> None:
    """They are averages of the trained model, which are run on its device and in no optimizer."""
    made = f"def build():\n    net = nn.Linear(3, 1)\n    {factory}return net\n"
    loop = "others.values()" if "{" in others else "others"
    shown = f"for other in {loop}:\n    print(other(torch.ones(1, 3).cuda()))\n" if others else ""
    text = model_of(made + "model = build()\n" + others + OPTIMIZER + LOADER + LOOP + shown).tree.text
    converted = settled_source(text).new_text
    assert (moved in converted) is stays
    assert "DataParallel" not in converted
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in converted


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("tried = build().cuda()", ["model"]),
        (
            "tried = build().cuda()\n    second = torch.optim.SGD(tried.parameters(), lr=1)",
            ["model", "tried"],
        ),
    ],
)
def test_a_model_that_is_made_for_each_batch_is_not_prepared(first: str, names: list[str]) -> None:
    """Prepare keeps what it is given, and these are thrown away."""
    loop = LOOP.replace(
        "loader:\n    ", f"loader:\n    {first}\n    tried.load_state_dict(model.state_dict())\n    ", 1
    )
    plan = Plan(model_of(FACTORY + "model = build().cuda()\n" + OPTIMIZER + LOADER + loop))
    assert [name for name in prepared(plan) if name in ("model", "tried")] == names


@pytest.mark.parametrize(
    ("leave", "inside"),
    [("return", True), ("sys.exit()", True), ("raise ValueError('no loader')", False), ("print(0)", False)],
)
def test_a_loader_made_under_a_test_behind_which_a_run_may_leave(leave: str, inside: bool) -> None:
    """With `--evaluate` it is never made, so the others are prepared without it."""
    made = f"if not args.evaluate:\n    {LOADER}"
    test = f"if args.evaluate:\n    {leave}\n"
    body = textwrap.indent(f"{MODEL}{OPTIMIZER}{made}{test}{LOOP}", "    ")
    plan = Plan(model_of(f"import sys\ndef main():\n{body}\nmain()\n"))
    names = [site.names() for site in plan.sites]
    assert names == ([["model", "optimizer"], ["loader"]] if inside else [["model", "optimizer", "loader"]])


SOLVER = """
class Solver:
    def __init__(self, mode):
        if mode == "train":
            self.loader = DataLoader(data, shuffle=True)
        elif mode == "tune":
            self.loader = DataLoader(data)
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            F.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

solver = Solver(args.mode)
{run}
"""


@pytest.mark.parametrize(
    ("run", "places"),
    [
        ("solver.train()", ["optimizer"]),
        ("if args.mode != 'show':\n    solver.train()", ["loader", "loader", "optimizer"]),
    ],
)
def test_a_loader_that_some_modes_do_not_have_is_prepared_where_it_is_made(
    run: str, places: list[str]
) -> None:
    plan = Plan(model_of(SOLVER.format(run=run)))
    assert plan.blockers == []
    made = [plan.tree.segment(site.after).partition(" = ")[0].removeprefix("self.") for site in plan.sites]
    assert made == places


@pytest.mark.parametrize(
    ("test", "inside"),
    [
        (
            "for name in args.tasks:\n    if name not in args.known:\n        continue\n    print(name)\n",
            False,
        ),
        ("for name in args.tasks:\n    if name in args.known:\n        break\n", False),
        ("for name in args.tasks:\n    if name in args.known:\n        return\n", True),
    ],
)
def test_a_loop_that_ends_early_before_the_training_leaves_nothing_out(test: str, inside: bool) -> None:
    made = f"if args.plain:\n    {LOADER}elif args.other:\n    {LOADER}"
    body = textwrap.indent(f"{MODEL}{OPTIMIZER}{made}{test}{LOOP}", "    ")
    plan = Plan(model_of(f"def main():\n{body}\nmain()\n"))
    sites = [["model", "optimizer"], ["loader"], ["loader"]] if inside else [["model", "optimizer", "loader"]]
    assert [site.names() for site in plan.sites] == sites
