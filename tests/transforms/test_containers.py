"""Models and optimizers in lists, tuples and dictionaries, and as parts of composite modules."""

from __future__ import annotations

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.test_real_kinds import LOOP, converted, script

LOADER = "loader = DataLoader(data, batch_size=4)\n"
EACH = """\
for x, y in loader:
    for net, opt in zip(models, optimizers):
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
SGD = "torch.optim.SGD({}.parameters(), lr=0.1)"


def test_lists_are_prepared_element_by_element() -> None:
    made = f"models = [nn.Linear(3, 1) for _ in range(3)]\noptimizers = [{SGD.format('m')} for m in models]\n"
    text = converted(script(made, LOADER, EACH))
    assert (
        "models = [accelerator.prepare(model) for model in models]\n"
        "optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]\n"
        "loader = accelerator.prepare(loader)\n"
    ) in text


@pytest.mark.parametrize("taken", ["models[k]", "net"])
def test_a_list_is_prepared_behind_the_loop_that_fills_it(taken: str) -> None:
    made = f"""\
models, optimizers = [], []
for k in range(3):
    models.append(nn.Linear(3, 1))
    optimizers.append({SGD.format("models[k]")})
"""
    loop = EACH if taken == "net" else EACH.replace("net(x)", "models[0](x)")
    text = converted(script(made, LOADER, loop))
    assert text.index("optimizers.append") < text.index("models = [accelerator.prepare(model)")


@pytest.mark.parametrize("empty", ["[None] * 3", "[0] * len(data)", "[None for _ in range(3)]"])
def test_a_list_of_a_length_that_is_filled_by_index(empty: str) -> None:
    made = f"""\
models, optimizers, loaders = {empty}, {empty}, {empty}
for k in range(3):
    models[k] = nn.Linear(3, 1)
    optimizers[k] = {SGD.format("models[k]")}
    loaders[k] = DataLoader(data, batch_size=4)
"""
    loop = """\
for k in range(3):
    for x, y in loaders[k]:
        loss = (models[k](x) - y).pow(2).mean()
        optimizers[k].zero_grad()
        loss.backward()
        optimizers[k].step()
"""
    text = converted(script(made, "", loop))
    assert "    loaders[k] = accelerator.prepare(DataLoader(data, batch_size=4))\n" in text
    assert "models = [accelerator.prepare(model) for model in models]\n" in text
    assert "optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]\n" in text


def test_what_is_appended_is_prepared_before() -> None:
    made = f"""\
models, optimizers = [], []
for _ in range(3):
    model = nn.Linear(3, 1)
    optimizer = {SGD.format("model")}
    models.append(model)
    optimizers.append(optimizer)
"""
    loop = (
        EACH.replace("net, opt", "model, optimizer").replace("net(", "model(").replace("opt.", "optimizer.")
    )
    text = converted(script(made, LOADER, loop))
    assert "    model, optimizer = accelerator.prepare(model, optimizer)\n    models.append(model)\n" in text


def test_a_dictionary() -> None:
    made = f"""\
nets = {{"g": nn.Linear(3, 3), "d": nn.Linear(3, 1)}}
opts = {{name: {SGD.format("net")} for name, net in nets.items()}}
"""
    loop = """\
for x, y in loader:
    loss = (nets["d"](nets["g"](x)) - y).pow(2).mean()
    loss.backward()
    opts["d"].step()
    opts["g"].step()
"""
    text = converted(script(made, LOADER, loop))
    assert "nets = {name: accelerator.prepare(net) for name, net in nets.items()}\n" in text
    assert "opts = {name: accelerator.prepare(opt) for name, opt in opts.items()}\n" in text


def test_a_dictionary_that_has_the_name_of_what_it_holds() -> None:
    made = f"""\
model = {{"g": nn.Linear(3, 3), "d": nn.Linear(3, 1)}}
opts = {{name: {SGD.format("net")} for name, net in model.items()}}
"""
    loop = """\
for x, y in loader:
    (model["d"](model["g"](x)) - y).pow(2).mean().backward()
    opts["d"].step()
    opts["g"].step()
"""
    text = converted(script(made, LOADER, loop))
    assert "model = {name: accelerator.prepare(element) for name, element in model.items()}\n" in text


NETS = "nets = {'small': nn.Linear(3, 1), 'deep': nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))}\n"
ONE = """\
for x, y in loader:
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("taken", ["nets[os.environ['NET']]", "nets['deep']", "nets.get(os.environ['NET'])"])
def test_the_one_that_is_chosen_is_prepared_alone(taken: str) -> None:
    text = converted(script(NETS, f"net = {taken}\nopt = {SGD.format('net')}\n", LOADER, ONE))
    assert "\nnet, opt, loader = accelerator.prepare(net, opt, loader)\n" in text
    assert "nets.items()" not in text


def test_those_that_are_read_elsewhere_are_prepared_where_they_are_kept() -> None:
    made = f"net = nets[os.environ['NET']]\nopt = {SGD.format('net')}\n"
    text = converted(script(NETS, made, LOADER, ONE, "for other in nets.values():\n    other.eval()\n"))
    assert "nets = {name: accelerator.prepare(" in text
    loop = "".join(f"    {line}\n" for line in (made + ONE).splitlines())
    text = converted(
        script(NETS, LOADER, f"for name in ('small', 'deep'):\n{loop}").replace("os.environ['NET']", "name")
    )
    assert "nets = {name: accelerator.prepare(" in text


@pytest.mark.parametrize(
    "through", ["itertools.chain.from_iterable(loaders)", "chain(*loaders)", "chain(loaders[0], loaders[1])"]
)
def test_loaders_that_are_gone_through_one_after_the_other(through: str) -> None:
    made = "loaders = [DataLoader(data, batch_size=n) for n in (2, 4)]\n"
    trains = f"net = nn.Linear(3, 1)\nopt = {SGD.format('net')}\n"
    imports = "import itertools\nfrom itertools import chain\n"
    text = converted(script(imports, trains, made, ONE.replace("in loader", f"in {through}")))
    assert "loaders = [accelerator.prepare(DataLoader(data, batch_size=n)) for n in (2, 4)]\n" in text


TURNS = """\
class Turns:
    def __init__(self, first, second):
        self.first, self.second = self.forever(first), self.forever(second)
        self.step = 0

    def __next__(self):
        self.step += 1
        return next(self.first if self.step % 2 else self.second)

    @staticmethod
    def forever(loader):
        while True:
            for batch in loader:
                yield batch


net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
one, two = DataLoader(data, batch_size=4), DataLoader(data, batch_size=4)
turns = Turns(one, two)
"""
DRAWS = """\
    x, y = next(turns)
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    "draws",
    [f"for step in range(4):\n{DRAWS}", f"def go(turns):\n{DRAWS}\n\nfor step in range(4):\n    go(turns)\n"],
)
def test_loaders_that_an_iterator_of_ones_own_takes_from(draws: str) -> None:
    text = converted(script(TURNS, draws))
    (made,) = [line for line in text.splitlines() if "accelerator.prepare(" in line and "one" in line]
    assert "one, two)" in made
    assert text.index(made) < text.index("\nturns = Turns(one, two)\n")


def test_an_iterator_that_makes_its_batches_itself_has_no_loader() -> None:
    draws = "        return torch.randn(4, 3), torch.randn(4, 1)\n\n    @staticmethod"
    made = TURNS.replace(
        "        return next(self.first if self.step % 2 else self.second)\n\n    @staticmethod", draws
    )
    text = converted(script(made, f"for step in range(4):\n{DRAWS}"))
    assert "net, opt = accelerator.prepare(net, opt)\n" in text


def test_lists_of_batches_are_no_loaders() -> None:
    made = "batches = [[(torch.randn(2, 3), torch.randn(2, 1))] for _ in range(3)]\n"
    trains = f"net = nn.Linear(3, 1)\nopt = {SGD.format('net')}\n"
    text = converted(
        script("from itertools import chain\n", trains, made, ONE.replace("loader", "chain(*batches)"))
    )
    assert "net, opt = accelerator.prepare(net, opt)\n" in text
    assert made in text


def test_a_tuple() -> None:
    made = (
        'nets = (nn.Linear(3, 3), nn.Linear(3, 1))\nparams = [{"params": net.parameters()} for net in nets]\n'
    )
    made += "optimizer = torch.optim.SGD(params, lr=0.1)\n"
    loop = LOOP.replace("model(x.to(WHERE))", "nets[1](nets[0](x.to(WHERE)))")
    assert "nets = tuple(accelerator.prepare(net) for net in nets)\n" in converted(script(made, LOADER, loop))


def test_a_list_with_two_names_is_changed_in_place() -> None:
    made = f"""\
class Trainer:
    def __init__(self):
        models = [nn.Linear(3, 1) for _ in range(3)]
        self.models = models
        self.optimizers = [{SGD.format("m")} for m in models]
        self.loader = DataLoader(data, batch_size=4)

    def fit(self):
        for x, y in self.loader:
            for net, opt in zip(self.models, self.optimizers):
                loss = (net(x) - y).pow(2).mean()
                loss.backward()
                opt.step()


Trainer().fit()
"""
    text = converted(script(made))
    assert "models[:] = [self.accelerator.prepare(model) for model in " in text


@pytest.mark.parametrize(
    "taken",
    [
        "net = self.nets[i]\n        opt = self.opts[i]",
        "net, opt = self.nets[i], self.opts[i]",
        "net, opt, x = self.nets[i], self.opts[i], x + 1",
    ],
)
def test_what_a_step_takes_out_of_lists_is_prepared_where_it_is_put_there(taken: str) -> None:
    """And not again in each step, as a model of its own."""
    made = f"""\
class Trainer:
    def __init__(self, many):
        self.nets = [nn.Linear(3, 1)]
        if many:
            self.nets.append(nn.Linear(3, 1))
        self.opts = [{SGD.format("m")} for m in self.nets]
        self.loader = DataLoader(data, batch_size=4)

    def step(self, i, x, y):
        {taken}
        opt.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        opt.step()

    def fit(self):
        for x, y in self.loader:
            for i in range(len(self.nets)):
                self.step(i, x, y)


Trainer(True).fit()
"""
    text = converted(script(made))
    assert "self.nets = [self.accelerator.prepare(net) for net in self.nets]\n" in text
    assert f"        {taken}\n        opt.zero_grad()" in text


def test_names_that_no_element_is_called_by_stay_short() -> None:
    """`for net in nets: net.train()` does the same to a model that is not wrapped."""
    made = "model = nn.Linear(3, 1)\nnets = [model]\nfor net in nets:\n    net.train()\n"
    made += f"optimizer = {SGD.format('model')}\n"
    text = converted(script(made, LOADER, LOOP))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor x, y in" in text


COMPOSITE = """\
class Pair(nn.Module):
    def __init__(self, g, d):
        super().__init__()
        self.g, self.d = g, d

    def forward(self, x):
        return self.d(self.g(x))


g, d = nn.Linear(3, 3), nn.Linear(3, 1)
"""
OPTIMIZERS = f"og, od = {SGD.format('g')}, {SGD.format('d')}\n"
GAN = """\
for x, _ in loader:
    loss = both(x).mean()
    loss.backward()
    og.step()
    loss = WHAT.mean()
    loss.backward()
    od.step()
"""


def test_the_composite_that_alone_is_called_is_prepared() -> None:
    text = converted(
        script(COMPOSITE, "both = Pair(g, d)\n", OPTIMIZERS, LOADER, GAN.replace("WHAT", "both(x)"))
    )
    assert "both, og, od, loader = accelerator.prepare(both, og, od, loader)\n" in text


def test_parts_that_are_called_too_are_prepared_before_the_composite_is_made() -> None:
    text = converted(
        script(COMPOSITE, "both = Pair(g, d)\n", OPTIMIZERS, LOADER, GAN.replace("WHAT", "d(g(x))"))
    )
    assert "g, d = accelerator.prepare(g, d)\nboth = Pair(g, d)\n" in text


def test_a_composite_of_a_class_that_is_not_seen() -> None:
    made = "import zoo\ng, d = zoo.G(), zoo.D()\nboth = zoo.Pair(g, d)\n" + OPTIMIZERS
    text = converted(script(made, LOADER, GAN.replace("WHAT", "both(x)")))
    assert "g, d = accelerator.prepare(g, d)\nboth = zoo.Pair(g, d)\n" in text


def test_models_that_keep_their_optimizers_are_prepared_with_the_composite() -> None:
    made = COMPOSITE.replace("class Pair", """\
class Part(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(3, size)
        self.optim = torch.optim.SGD(self.parameters(), lr=0.1)

    def forward(self, x):
        return self.fc(x)


class Pair""").replace("nn.Linear(3, 3), nn.Linear(3, 1)\n", "Part(3), Part(1)\n")  # fmt: skip
    loop = GAN.replace("WHAT", "both(x)").replace("og.", "g.optim.").replace("od.", "d.optim.")
    assert "both, loader = accelerator.prepare(both, loader)\n" in converted(
        script(made, "both = Pair(g, d)\n", LOADER, loop)
    )


@pytest.mark.parametrize("second", ["nn.DataParallel(single)", "single"])
def test_of_two_names_the_one_that_trains_is_prepared(second: str) -> None:
    made = f"single = nn.Linear(3, 1)\nmodel = {second}\noptimizer = {SGD.format('single')}\n"
    shown = "    with torch.no_grad():\n        print(single(x))\n"
    assert "model, optimizer, loader = accelerator.prepare(" in converted(script(made, LOADER, LOOP, shown))


def test_a_bar_of_a_helper_is_no_loader() -> None:
    helper = "def bar(items):\n    for item in items:\n        yield item\n\n\n"
    made = f"model = nn.Linear(3, 1)\noptimizer = {SGD.format('model')}\nloaders = [DataLoader(data)]\n"
    shown = "if torch.rand(1) > 2:\n    pbar = tqdm(loaders[0])\nelse:\n    pbar = bar(loaders[0])\n"
    text = converted(script(helper, made, shown, LOOP.replace("in loader", "in pbar")))
    assert "loaders = [accelerator.prepare(DataLoader(data))]\n" in text
    assert "prepare(pbar)" not in text


def test_a_model_with_a_method_to_of_its_own() -> None:
    """What it moves besides its parameters, prepare does not: the call stays."""
    made = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(3, 1), torch.ones(1)

    def forward(self, x):
        return self.fc(x) * self.scale

    def to(self, device):
        self.scale = self.scale.to(device)
        return super().to(device)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
"""
    text = converted(script(made, f"optimizer = {SGD.format('model')}\n", LOADER, LOOP))
    assert "model = Net().to(device)\n" in text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in text


def test_a_method_that_trains_runs_past_the_wrapper() -> None:
    made = f"""\
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.optimizer = {SGD.format("self")}

    def forward(self, x):
        return self.fc(x)

    def learn(self, x, y):
        loss = (self.forward(x) - y).pow(2).mean()
        loss.backward()
        self.optimizer.step()


agent = Agent()
"""
    loop = "for x, y in loader:\n    agent.learn(x, y)\n    agent(x).mean().backward()\n"
    text = converted(script(made, LOADER, loop))
    assert "    accelerator.unwrap_model(agent).learn(x, y)\n" in text
    assert "agent, loader = accelerator.prepare(agent, loader)\n" in text


def test_models_with_optimizers_of_their_own_that_are_not_seen() -> None:
    """Of the models that are trained, none is left out, and what only changes its mode is none of them."""
    made = f"""\
import zoo

gen, average, other = zoo.Gen(), zoo.Gen(), nn.Linear(3, 1)
print(gen.parameters(), average.parameters())
optimizer = {SGD.format("other")}
"""
    loop = """\
for x, _ in loader:
    gen.train()
    average.train()
    gen.optim.zero_grad()
    other(gen(x)).mean().backward()
    gen.optim.step()
    optimizer.step()
"""
    text = converted(script(made, LOADER, loop))
    assert "gen, other, optimizer, loader = accelerator.prepare(gen, other, optimizer, loader)\n" in text


KEPT = f"""\
def build(conf):
    train_conf, parts = conf["train"], conf["parts"]
    net = nn.Linear(3, 1)
    parts["net"] = net
    train_conf["optimizer"] = {SGD.format("net")}

    def step(x):
        net = conf["parts"]["net"]
        loss = net(x).mean()
        train_conf["optimizer"].zero_grad()
        loss.backward()
        train_conf["optimizer"].step()

    return step


conf = {{"train": {{TRAIN}}, "parts": {{}}}}
step = build(conf)
"""
STEPS = "for x, y in loader:\n    step(x)\n"


def test_what_is_kept_under_a_key_and_taken_out_elsewhere_is_prepared_before() -> None:
    text = converted(script(KEPT.replace("{TRAIN}", "{}"), LOADER, STEPS))
    assert '    net = accelerator.prepare(net)\n    parts["net"] = net\n' in text
    each = "{name: accelerator.prepare(optimizer) for name, optimizer in train_conf.items()}"
    assert f"    train_conf.update({each})\n" in text


@pytest.mark.parametrize(("train", "later"), [('{"rate": 0.1}', ""), ("{}", 'conf["train"]["rate"] = 0.1\n')])
def test_numbers_beside_an_optimizer_are_not_prepared(train: str, later: str) -> None:
    made = KEPT.replace("{TRAIN}", train) + later
    conversion = convert_source(Source.from_text(script(made, LOADER, STEPS)))
    reason = 'the optimizer `train_conf["optimizer"]` is stored in `train_conf`, whose elements are not all of one kind'
    assert reason in conversion.reason


LISTED = """\
class Trainer:
    def __init__(self, loaders):
        self.train_loader = {first}
        if len(loaders) > 1:
            self.test_loader = loaders[1]

    def again(self, loader):
        while True:
            yield from loader

    def train(self, net, opt):
        for x, y in self.train_loader:
            loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()

    def test(self, net):
        with torch.no_grad():
            for x, y in self.test_loader:
                print(net(x.to(device)))


device = torch.device("cuda")
net = nn.Linear(3, 1).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loaders = [DataLoader(data, batch_size=4, shuffle=True)]
{more}
trainer = Trainer(loaders)
trainer.train(net, opt)
"""
TWO = "if 'TEST' in os.environ:\n    loaders.append(DataLoader(data, batch_size=2))"


@pytest.mark.parametrize("first", ["loaders[0]", "self.again(loaders[0])"])
def test_loaders_in_a_list_that_options_make_longer_are_prepared_where_they_are_made(first: str) -> None:
    text = converted(script(LISTED.format(first=first, more=TWO)))
    assert "loaders = [accelerator.prepare(DataLoader(data, batch_size=4, shuffle=True))]\n" in text
    assert "loss = nn.functional.mse_loss(net(x), y)\n" in text
    assert "self.train_loader = accelerator" not in text


def test_at_known_places_of_a_list_they_have_the_names_that_they_get() -> None:
    more = "loaders = [DataLoader(data, batch_size=4), DataLoader(data, batch_size=2)]"
    text = converted(script(LISTED.format(first="loaders[0]", more=more)))
    assert "self.train_loader = accelerator.prepare(self.train_loader)\n" in text
    assert "accelerator.prepare(DataLoader" not in text


SEVERAL = """\
class Several:
    def __init__(self, *given):
        self.given = given

    def zero_grad(self):
        for one in self.given:
            one.zero_grad()

    def step(self):
        for one in self.given:
            one.step()


head = nn.Linear(1, 1)
optimizer = Several({first}, {second})
"""


def test_optimizers_that_an_object_is_handed_one_after_the_other() -> None:
    made = "model = nn.Linear(3, 1)\n" + SEVERAL.format(first=SGD.format("model"), second=SGD.format("head"))
    loop = LOOP.replace("model(x)", "head(model(x))")
    text = converted(script(made, LOADER, loop))
    assert "        self.given = tuple(accelerator.prepare(optimizer) for optimizer in self.given)\n" in text
    assert "model, head, loader = accelerator.prepare(model, head, loader)" in text
