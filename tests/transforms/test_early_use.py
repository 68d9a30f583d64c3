"""Models that something is done with before prepare puts them on the device."""

from __future__ import annotations

import pytest

from tests.transforms.support import convert

BUILD = """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

def blend(slow, fast, keep=0.9):
    for p, q in zip(slow.parameters(), fast.parameters()):
        p.data.mul_(keep).add_(q.data, alpha=1 - keep)

def outer(slow, fast):
    blend(slow, fast, keep=0)

def copied(slow, fast):
    for p, q in zip(slow.parameters(), fast.parameters()):
        p.data.copy_(q.data)

def loaded(slow, fast):
    slow.load_state_dict(fast.state_dict())

model = nn.Linear(4, 2).to(device)
slow = nn.Linear(4, 2){move}
{early}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    "early",
    [
        "blend(slow, model, 0)",
        "outer(slow=slow, fast=model)",
        "for p, q in zip(slow.parameters(), model.parameters()):\n    p.data = 0.9 * p.data + 0.1 * q.data",
    ],
)
def test_a_model_that_is_reckoned_with_beside_one_on_the_device(early: str) -> None:
    text = convert(build=BUILD.format(move=".to(device)", early=early)).new_text
    assert "model = nn.Linear(4, 2).to(device)\nslow = nn.Linear(4, 2).to(device)\n" in text
    # Nothing is on the device yet: neither is the one that prepare puts there.
    text = convert(build=BUILD.format(move="", early=early)).new_text
    assert "model = nn.Linear(4, 2)\nslow = nn.Linear(4, 2)\n" in text


@pytest.mark.parametrize(
    ("early", "kept"),
    [
        ("first = copy.deepcopy(model.state_dict())", True),
        ("first = {n: p.clone() for n, p in model.state_dict().items()}", True),
        ("first = {}\nfor n, p in model.named_parameters():\n    first[n] = p.data.clone()", True),
        ("first = {n: torch.zeros_like(p) for n, p in model.named_parameters()}", True),
        ("first = torch.cat([p.data.view(-1) for p in model.parameters()])", True),
        ("places = [p.device for p in model.parameters()]", True),
        ("first = model.weight.data.clone()", True),
        ("mask = torch.ones_like(model.weight)", True),
        ("first = list(model.parameters())[0].detach().clone()", True),
        ("first = model.state_dict()['weight'].clone()", True),
        ("where = next(model.parameters()).device", True),
        ("masks = []\nfor part in model.modules():\n    masks.append(torch.ones_like(part.weight))", True),
        ("masks = {n: torch.ones_like(m.weight) for n, m in model.named_modules()}", True),
        ("mask = torch.ones_like(model.weight).cpu()", False),
        ("mask = torch.ones_like(data.tensors[0])", False),
        ("for part in model.modules():\n    print(part, torch.ones_like(data.tensors[0]))", False),
        ("first = {n: p.cpu().clone() for n, p in model.state_dict().items()}", False),
        ("sizes = sorted([p.numel() for p in model.parameters()])", False),
        ("first = model.state_dict()\nmodel.load_state_dict(first)", False),
        ("count = sum(p.numel() for p in model.parameters())", False),
    ],
)
def test_weights_that_are_kept_lie_where_the_model_does(early: str, kept: bool) -> None:
    text = convert(imports="import copy", build=BUILD.format(move="", early=early)).new_text
    assert ("model = nn.Linear(4, 2).to(device)\n" in text) == kept


@pytest.mark.parametrize("early", ["copied(slow, model)", "loaded(slow, model)", "print(slow, model)", ""])
def test_copies_over_devices_need_no_move(early: str) -> None:
    text = convert(build=BUILD.format(move=".to(device)", early=early), end="blend(slow, model)").new_text
    assert "model = nn.Linear(4, 2)\nslow = nn.Linear(4, 2).to(device)\n" in text


def test_two_models_that_prepare_places() -> None:
    """Both are on the CPU until then."""
    build = BUILD.format(move=".to(device)", early="blend(slow, model)").replace(
        "model.parameters(), lr", "[*model.parameters(), *slow.parameters()], lr"
    )
    text = convert(build=build, loss="loss = F.cross_entropy(model(x) + slow(x), y)").new_text
    assert "model = nn.Linear(4, 2)\nslow = nn.Linear(4, 2)\n" in text


INIT = "def init(m):\n    if isinstance(m, nn.Linear):\n        nn.init.xavier_uniform_(m.weight)\n"


@pytest.mark.parametrize(
    ("early", "kept"),
    [
        ("model.apply(init)", True),
        ("model.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)", True),
        ("model.apply(print)", False),
        ("init(model)", True),
        ("model.share_memory()", True),
        ("Process(target=print, args=(model, 1)).start()", True),
        ("Process(target=print, args=(1,)).start()", False),
    ],
)
def test_weights_that_are_drawn_or_shared_lie_where_the_model_does(early: str, kept: bool) -> None:
    build = BUILD.format(move="", early=f"{INIT}{early}")
    text = convert(imports="from multiprocessing import Process", build=build).new_text
    assert ("model = nn.Linear(4, 2).to(device)\n" in text) is kept


METHOD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(4, 3), nn.Linear(3, 2)
        self.rate = 0.5

    def forward(self, x):
        return self.fc(self.body(x))

    def extract(self, x):
        return self.body(x)

    def faster(self, x):
        return self.rate * x

def look(batches, net):
    for x, y in batches:
        print(net.{method}(x.cuda()))

model = Net().cuda()
first = DataLoader(data, batch_size=8)
look(first, model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(("method", "early"), [("extract", True), ("faster", False)])
def test_a_helper_that_runs_parts_of_the_model_by_a_method_of_its_own(method: str, early: bool) -> None:
    text = convert(ready=METHOD.format(method=method)).new_text
    assert ("model = Net().to(accelerator.device)\n" in text) is early


KEPT = """
from torch_ema import ExponentialMovingAverage

class Average:
    def __init__(self, weights=(), rate=0.9):
        self.rate, self.kept, self.places = rate, {{}}, {{}}
        self.rows = [w.clone().detach() for w in weights]

    def register(self, name, value):
        self.kept[name] = value.clone()

    def hold(self, name, value):
        self.kept[name] = value

    def place(self, name, value):
        self.kept[name] = value.to("cpu").clone()
        self.places[name] = value.device

    def count(self, name, value):
        print(name, value.numel())

def rows_of(weights):
    return torch.cat([w.view(-1) for w in weights])

def place_of(net):
    return next(net.parameters()).device

def size_of(weights):
    return sum(w.numel() for w in weights)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
average = Average()
{early}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
NAMED = "for name, p in model.named_parameters():\n    "


@pytest.mark.parametrize(
    ("early", "kept"),
    [
        (NAMED + "if p.requires_grad:\n        average.register(name, p.data)", True),
        (NAMED + "average.hold(name, p.data)", True),
        (NAMED + "average.place(name, value=p)", True),
        ("average = Average(model.parameters())", True),
        ("rows = rows_of(model.parameters())", True),
        ("average = ExponentialMovingAverage(model.parameters(), decay=0.9)", True),
        ("where = place_of(model)", True),
        ("where = place_of(net=model)", True),
        (NAMED + "average.count(name, p)", False),
        (NAMED + "average.register(name, torch.ones(1))", False),
        ("print(size_of(model.parameters()))", False),
        ("count = len(list(model.parameters()))", False),
    ],
)
def test_weights_that_an_object_keeps_lie_where_the_model_does(early: str, kept: bool) -> None:
    text = convert(build=KEPT.format(early=early)).new_text
    assert ("model = nn.Linear(4, 2).to(device)\n" in text) is kept
