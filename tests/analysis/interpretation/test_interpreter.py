"""Which objects names stand for: models, optimizers and loaders on their way through a script."""

from __future__ import annotations

import textwrap

import pytest

from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.convert import convert_source
from accelify.source import Source
from tests.analysis.support import HEAD, LOADER, LOOP, MODEL, OPTIMIZER, lines_of, model_of

LINEAR, SGD = "nn.Linear(2, 2)", "torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    "body",
    [
        MODEL + OPTIMIZER + LOADER + LOOP,
        "def make():\n    return nn.Linear(2, 2)\nmodel = make()\n" + OPTIMIZER + LOADER + LOOP,
        "def make():\n    model = nn.Linear(2, 2)\n    return model, torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model, optimizer = make()\n" + LOADER + LOOP,
        MODEL
        + OPTIMIZER
        + "loaders = {'train': DataLoader(data), 'val': 3}\nloader = loaders['train']\n"
        + LOOP,
        MODEL + OPTIMIZER + "loaders = {k: DataLoader(data) for k in 'ab'}\nloader = loaders['a']\n" + LOOP,
        MODEL + "model = nn.DataParallel(model)\n" + OPTIMIZER + LOADER + LOOP,
        MODEL + OPTIMIZER + LOADER + "teacher = copy.deepcopy(model)\n" + LOOP,
        MODEL + "again = model\n" + OPTIMIZER + LOADER + LOOP.replace("model(x)", "again(x)"),
        MODEL + OPTIMIZER + LOADER + "it = iter(loader)\nfor i in range(3):\n    x, y = next(it)\n"
        "    F.mse_loss(model(x), y).backward()\n    optimizer.step()\n",
        MODEL + OPTIMIZER + LOADER + LOOP.replace("in loader", "in zip(loader, loader)"),
        MODEL
        + OPTIMIZER
        + LOADER
        + LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader, 1)"),
        "class T:\n    def __init__(self):\n        model = nn.Linear(2, 2)\n        self.model = model\n"
        "        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)\n        self.loader = DataLoader(data)\n"
        "    def fit(self):\n        for x, y in self.loader:\n            F.mse_loss(self.model(x), y).backward()\n"
        "            self.opt.step()\nT().fit()\n",
        "def train(net, batches, opt):\n    for x, y in batches:\n        F.mse_loss(net(x), y).backward()\n"
        "        opt.step()\n"
        + MODEL
        + OPTIMIZER
        + "train(model, opt=optimizer, batches=DataLoader(data))\n",
    ],
)
def test_one_of_each(body: str) -> None:
    script = model_of(body)
    assert lines_of(script, script.trained_models) == [LINEAR]
    assert lines_of(script, script.optimizers) == [SGD]
    assert lines_of(script, script.training_loaders) == ["DataLoader(data)"]


@pytest.mark.parametrize(
    "parameters",
    [
        "model.parameters()",
        "[p for p in model.parameters() if p.requires_grad]",
        "filter(lambda p: p.requires_grad, model.parameters())",
        "[{'params': model.weight}, {'params': [model.bias], 'lr': 1}]",
        "list(model.parameters())",
    ],
)
def test_parameters_belong_to_their_model(parameters: str) -> None:
    script = model_of(
        MODEL + f"params = {parameters}\noptimizer = torch.optim.SGD(params, lr=1)\n" + LOADER + LOOP
    )
    assert lines_of(script, script.trained_models) == [LINEAR]


@pytest.mark.parametrize(
    "parameters",
    [
        "itertools.chain(a.parameters(), model.parameters())",
        "list(a.parameters()) + list(model.parameters())",
        "list(a.parameters())[1:] + list(model.parameters())[:-1]",
        "every(a, model)",
        "nn.ModuleList([a, model]).parameters()",
        "nn.Sequential(a, model).parameters()",
        "nn.ModuleDict({'a': a, 'b': model}).parameters()",
    ],
)
def test_parameters_of_two_models(parameters: str) -> None:
    optimizer = f"optimizer = torch.optim.SGD({parameters}, lr=1)\n"
    helper = "def every(*nets):\n    return [p for net in nets for p in net.parameters()]\n"
    script = model_of("a = nn.Linear(3, 3)\n" + helper + MODEL + optimizer + LOADER + LOOP)
    assert lines_of(script, script.trained_models) == [LINEAR, "nn.Linear(3, 3)"]


@pytest.mark.parametrize(
    "more",
    [
        "given += list(a.parameters())",
        "given += a.parameters()",
        "given.extend(a.parameters())",
        "given = given + list(a.parameters())",
        "for one in a.parameters():\n    given.append(one)",
        "for net in (a,):\n    given += list(net.parameters())",
    ],
)
@pytest.mark.parametrize("begun", ["list(model.parameters())", "[*model.parameters()]"])
def test_parameters_that_are_put_to_those_of_another_model(begun: str, more: str) -> None:
    optimizer = "optimizer = torch.optim.SGD(given, lr=1)\n"
    script = model_of(f"a = nn.Linear(3, 3)\n{MODEL}given = {begun}\n{more}\n{optimizer}{LOADER}{LOOP}")
    assert lines_of(script, script.trained_models) == ["nn.Linear(2, 2)", "nn.Linear(3, 3)"]


@pytest.mark.parametrize("kept", ["nn.Sequential(model, nn.Linear(3, 3))", "nn.ModuleList([model])"])
def test_a_collection_with_a_name_is_one_model(kept: str) -> None:
    optimizer = "optimizer = torch.optim.SGD(both.parameters(), lr=1)\n"
    script = model_of(f"{MODEL}both = {kept}\n{optimizer}{LOADER}{LOOP}")
    assert lines_of(script, script.trained_models) == [kept]


def test_parameters_that_an_optimizer_is_given_later() -> None:
    added = "optimizer.add_param_group({'params': a.parameters()})\n"
    script = model_of(f"a = nn.Linear(3, 3)\n{MODEL}{OPTIMIZER}{added}{LOADER}{LOOP}")
    assert lines_of(script, script.trained_models) == ["nn.Linear(2, 2)", "nn.Linear(3, 3)"]


def test_a_number_of_parameters_makes_no_model_trained() -> None:
    counted = "count = 0\nfor net in (a, model):\n    count += sum(p.numel() for p in net.parameters())\n"
    script = model_of(f"a = nn.Linear(3, 3)\n{MODEL}{counted}{OPTIMIZER}{LOADER}{LOOP}")
    assert lines_of(script, script.trained_models) == ["nn.Linear(2, 2)"]


@pytest.mark.parametrize(
    "made",
    [
        "optimizer = getattr(torch.optim, args.o)(model.parameters())",
        "optimizer = {'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}[args.o](model.parameters())",
        "from torch.optim import Adam as make\noptimizer = make(model.parameters())",
    ],
)
def test_optimizers_made_by_name(made: str) -> None:
    script = model_of(MODEL + made + "\n" + LOADER + LOOP)
    assert len(script.optimizers) == 1
    assert lines_of(script, script.trained_models) == [LINEAR]


def test_either_of_two_optimizers() -> None:
    made = "if args.a:\n    optimizer = torch.optim.SGD(p())\nelse:\n    optimizer = torch.optim.Adam(p())\n"
    script = model_of(MODEL + "p = model.parameters\n" + made + LOADER + LOOP)
    assert len(script.optimizers) == 2


def test_a_plain_list_is_no_loader() -> None:
    script = model_of(MODEL + OPTIMIZER + "loader = [(1, 2)]\n" + LOOP)
    assert script.training_loaders == set()


def test_a_loader_that_only_evaluates_does_not_train() -> None:
    script = model_of(
        MODEL + OPTIMIZER + LOADER + "other = DataLoader(rest)\n" + LOOP + "for x in other:\n    model(x)\n"
    )
    assert lines_of(script, script.training_loaders) == ["DataLoader(data)"]


def test_the_variable_of_a_comprehension_is_its_own() -> None:
    text = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    nets = (nn.Linear(4, 4), nn.Linear(4, 1))
    [x.train() for x in nets]
    optimizer = torch.optim.SGD([p for x in nets for p in x.parameters()], lr=0.1)
    for batch in DataLoader([(torch.ones(4), torch.ones(1))] * 8, batch_size=2):
        x, y = [x.cuda() for x in batch]
        loss = (nets[1](nets[0](x)) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    conversion = convert_source(Source.from_text(textwrap.dedent(text)))
    assert conversion.status == "converted", conversion.reason
    assert "    x, y = batch\n" in conversion.new_text
    assert "x, y = accelerator.prepare" not in conversion.new_text


LOSS = """\
class TiedLoss(nn.Module):
    def __init__(self, pieces):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.pieces = pieces

    def forward(self, output, target):
        return ((output - target) * self.weight).sum()


criterion = TiedLoss(pieces=[args.vocabulary // 2])
optimizer = torch.optim.SGD(list(model.parameters()) + list(criterion.parameters()), lr=0.1)
"""
FLAGS = """\
class Trainer:
    def __init__(self, args):
        self.use_gpu = args.use_gpu
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        if self.use_gpu:
            self.model.cuda()


trainer = Trainer(args)
model, optimizer = trainer.model, trainer.optimizer
"""


@pytest.mark.parametrize("made", [LOSS, FLAGS], ids=["a loss with weights", "flags of the command line"])
def test_nothing_new_is_learnt_for_ever(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What swings, or is made anew in each round, costs every round that there is."""
    learnt: list[tuple[bool, bool]] = []
    plain = Interpreter.upgrade

    def counted(self: Interpreter) -> None:
        plain(self)
        learnt.append((self.settled, self.changed))

    monkeypatch.setattr(Interpreter, "upgrade", counted)
    model_of(MODEL + made + LOADER + LOOP)
    last = [changed for settled, changed in learnt if settled]
    assert last[-1] is False
    assert len(learnt) < 10


def test_a_loss_with_weights_is_prepared_with_its_model() -> None:
    script = model_of(MODEL + LOSS + LOADER + LOOP)
    assert lines_of(script, script.trained_models) == ["TiedLoss(pieces=[args.vocabulary // 2])", LINEAR]


def test_what_may_be_made_of_several_classes_is_known_by_the_first_in_every_run() -> None:
    names = [f"Net{number}" for number in range(8)]
    classes = "".join(f"class {name}(nn.Linear):\n    pass\n" for name in names)
    body = "model = {" + ", ".join(f"'{name}': {name}" for name in names) + "}[input()](2, 1)\n"
    text = classes + body
    known = set()
    for _ in range(4):
        (model,) = model_of(f"{text}{LOADER}{OPTIMIZER}{LOOP}").trained_models
        known.add((model.cls.name if model.cls is not None else "", model.evidence[0]))
    assert known == {("Net0", "it is an instance of Net0")}


def test_a_list_is_filled_where_its_name_may_stand_for_something_else_too() -> None:
    body = """
        distilling = nn.MSELoss()
        if args.several:
            distilling = []
            for size in (2, 3):
                distilling.append(nn.Linear(size, 2))
            distilling = [None] + [part.cuda() for part in distilling]
        first = distilling[1:]
        for part in first:
            model = part
    """
    script = model_of(textwrap.dedent(body) + OPTIMIZER + LOADER + LOOP)
    assert lines_of(script, script.trained_models) == ["nn.Linear(size, 2)"]


def test_the_elements_of_one_list_are_refused_once() -> None:
    text = """
        import sys
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        class Distance(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Linear(2, 2)

            def forward(self, x):
                return self.scale(x)

        def main():
            model = nn.Linear(2, 2)
            if sys.argv[1] == "one":
                parts = Distance()
            elif sys.argv[1] == "two":
                parts = []
                for _ in range(2):
                    parts.append(Distance())
                parts = [None] + parts
            else:
                parts = []
                for _ in range(3):
                    parts.append(Distance())
                parts = [None] + parts
            optimizer = torch.optim.SGD([*model.parameters(), *[p for c in parts[1:] for p in c.parameters()]], lr=0.1)
            for x, y in DataLoader(data):
                sum(part(model(x)).sum() for part in parts[1:]).backward()
                optimizer.step()

        main()
    """
    found = convert_source(Source.from_text(textwrap.dedent(text)))
    left = [finding.message for finding in found.remaining]
    assert left == [
        "left alone: the model `c` is stored in `parts`, whose elements are not all of one kind: "
        "they cannot be prepared one by one"
    ]


AGAIN = """
def score(net, x):
    return net(x)
first = score(model, 1)
{between}
def score(net, x):
    return net(x.cpu())
second = score(model, 2)
def later():
    return score(model, 3)
"""


@pytest.mark.parametrize(
    ("between", "meant"),
    [
        ("", [["return net(x)"], ["return net(x.cpu())"], ["return net(x)", "return net(x.cpu())"]]),
        ("score = torch.compile(score)", [["return net(x)", "return net(x.cpu())"]] * 3),
    ],
)
def test_a_call_means_the_definition_above_it(between: str, meant: list[list[str]]) -> None:
    """Cells of a notebook define a function again under its name; what a function calls may be either."""
    script = model_of(MODEL + AGAIN.format(between=between))
    calls = [c for c in script.calls() if script.tree.segment(c.func) == "score"]
    found = [
        sorted(script.tree.segment(scope.node.body[-1]) for scope in script.callees(call))
        for call in sorted(calls, key=script.tree.start)
    ]
    assert found == meant


def test_a_class_is_made_of_the_definition_above() -> None:
    net = "class Net(nn.Module):\n    def __init__(self):\n        self.{} = nn.Linear(2, 2)\n"
    script = model_of(f"{net.format('old')}one = Net()\n{net.format('new')}two = Net()\nprint(one, two)\n")
    kinds = {
        name: {key for t in script.entities(read) if t.cls is not None for key in t.cls.attributes}
        for name in ("one", "two")
        for read in script.reads(name, script.scopes.module)
    }
    assert kinds == {"one": {"old"}, "two": {"new"}}


@pytest.mark.parametrize(
    "growing",
    [
        "def run(config):\n    return run(**config)\nrun({'config': {'config': {'config': model}}})\n",
        "def run(parts):\n    return run(*parts)\nrun([[[model]]])\n",
        "class Node:\n    def __init__(self, inner):\n        self.inner = inner\n"
        "node = Node(Node(optimizer))\nnode.inner.inner = Node(model)\nnode.inner.inner.inner = node.inner\n",
        "parts = [[model]]\nparts.extend(parts[0])\nparts[0].extend(parts)\nparts[0][0] = parts\n",
    ],
)
def test_what_is_read_may_grow_by_that(growing: str) -> None:
    converted = convert_source(Source.from_text(HEAD + MODEL + OPTIMIZER + growing + LOADER + LOOP))
    assert converted.status == "converted", converted.reason
