"""Figures of one process's share of the data that nobody put together: shown, or what is saved goes by them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project, convert_source
from accelify.proving import prove
from accelify.source import Source
from tests.transforms import support
from tests.transforms.support import codes, frame, place_of

LOOP = """
def train_epoch():
    {fresh}
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        {body}
    return {result}
"""
STOPPER = """
class Stopper:
    def __init__(self):
        self.best, self.stop = 1e9, False
    def __call__(self, value):
        self.stop = value > self.best
        self.best = min(self.best, value)
stopper = Stopper()
"""
TABLE = """
class Table:
    def __init__(self):
        self.cells = [0, 0]
    def add(self, output, y):
        for right in (output.argmax(1) == y).tolist():
            self.cells[right] += 1
    def value(self):
        return self.cells[1] / sum(self.cells)
"""
LARGEST = LOOP.format(fresh="kept = 0", body="kept = measure(kept, loss.item())", result="kept")
KEPT = LOOP.format(fresh="kept = Table()", body="kept.add(output, y)", result="kept.value()")
IMPORTS = "import copy\nfrom m import measure"


def convert(*sizes: str, **snippets: str) -> Conversion:
    conversion = support.convert(*sizes, **snippets)
    prove([conversion], conversion)
    return conversion


def named(conversion: Conversion) -> bool:
    """Whether the engine names a figure, or that processes go on otherwise."""
    return bool({"ACC405", "ACC701", "ACC704"} & codes(conversion))


def found(**snippets: str) -> bool:
    return named(convert(**{"imports": IMPORTS, **snippets}))


def parted(**snippets: str) -> bool:
    return "ACC704" in codes(convert(**{"imports": IMPORTS, **snippets}))


@pytest.mark.parametrize(
    ("ready", "epoch"),
    [
        (LARGEST, "train_epoch()"),
        (
            LOOP.format(fresh="kept = []", body="kept.append(loss.item())", result="kept"),
            "print(train_epoch())",
        ),
        (LOOP.format(fresh="", body="print(loss.item())", result="loss.item()"), "print(train_epoch())"),
    ],
)
def test_what_is_right_or_shows_a_single_batch(ready: str, epoch: str) -> None:
    assert not found(ready="n = 0\n" + ready, epoch=epoch)


def test_which_entries_there_are_tells_nothing_of_what_they_hold() -> None:
    fresh = "kept = {'all': torch.zeros(0)}"
    body = "kept['all'] = torch.cat((kept['all'], loss.data.view(1)))\n        if {test}: kept['seen'] = [1]"
    epoch = "value = train_epoch()\nprint(value)"
    for test, expected in (("'seen' not in kept", False), ("kept['all'].sum() > 3", True)):
        ready = LOOP.format(fresh=fresh, body=body.format(test=test), result="kept['seen']")
        assert found(ready=ready, epoch=epoch) == expected


def test_evaluation_on_all_of_the_data() -> None:
    snippet = """
    hits, names = 0, []
    for x, y in test_loader:
        output = model(x)
        x = x.view(-1)
        hits += (output.argmax(1) == y).sum().item()
    print(hits)
    if hits > 60:
        torch.save(model.state_dict(), "best.pt")
        break
    """
    assert not found(epoch=snippet)


@pytest.mark.parametrize(
    "ready",
    [
        LARGEST,
        TABLE + KEPT,
        LOOP.format(fresh="kept = [0, 0]", body="kept[int(y[0])] = loss.item()", result="kept[1]"),
    ],
)
def test_figures_that_are_shown(ready: str) -> None:
    assert found(ready=ready, epoch="value = train_epoch()\nprint(f'{value}')")


@pytest.mark.parametrize(
    "epoch",
    [
        "now = train_epoch()\nif now > 3:\n    wait = wait + 1\nif wait: break",
        "now = train_epoch()\nif now < best:\n    best = now\n    torch.save(model.state_dict(), 'best.pt')",
        "now = train_epoch()\nif now < best:\n    best, other = now, copy.deepcopy(model.state_dict())\n"
        "model.load_state_dict(other)",
    ],
)
def test_decisions(epoch: str) -> None:
    assert found(ready="best, wait, other = 1e9, 0, model.state_dict()\n" + LARGEST, epoch=epoch)


@pytest.mark.parametrize(
    "epoch",
    [
        "if train_epoch() < 0.1: break",
        "stopper(train_epoch())\nif stopper.stop: break",
        "now = train_epoch()\nif now > 1:\n    for g in optimizer.param_groups: g['lr'] *= 0.1",
        "plateau.step(metrics=train_epoch())",
    ],
)
def test_decisions_on_how_to_train(epoch: str) -> None:
    made = "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    assert parted(ready=STOPPER + made + LARGEST, epoch=epoch)


def test_a_figure_of_one_expression() -> None:
    share = "sum((model(a).argmax(1) == b).sum().item() for a, b in loader) / len(data)"
    epoch = f"share = {share}\nprint(share)\nif share > best:\n    torch.save(model.state_dict(), 'best.pt')"
    assert found(setup="best = 0", epoch=epoch)
    assert not found(setup="best = 0", epoch=epoch.replace("in loader", "in test_loader"))


def test_a_choice_by_what_is_put_together() -> None:
    """The best epoch of a loop over phases: its figures are reduced, and the processes agree."""
    phases = """
    def train_model(loaders, sizes):
        best, best_weights = 0.0, copy.deepcopy(model.state_dict())
        for phase in ["train", "val"]:
            hits = 0
            for x, y in loaders[phase]:
                output = model(x)
                loss = F.cross_entropy(output, y)
                if phase == "train":
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                hits += torch.sum(output.argmax(1) == y)
            share = hits.double() / sizes[phase]
            if phase == "val" and share > best:
                best, best_weights = share, copy.deepcopy(model.state_dict())
        model.load_state_dict(best_weights)
    """
    phases = textwrap.dedent(phases)
    made = "loaders = {p: DataLoader(data, batch_size=8) for p in ['train', 'val']}\nsizes = {p: 64 for p in loaders}"
    conversion = convert(imports=IMPORTS, ready=phases + "\n" + made, epoch="train_model(loaders, sizes)")
    assert not named(conversion)
    worst = phases.replace("hits += torch.sum(output.argmax(1) == y)", "hits = measure(hits, output)")
    conversion = convert(imports=IMPORTS, ready=worst + "\n" + made, epoch="train_model(loaders, sizes)")
    assert named(conversion)


def test_decisions_of_a_class_that_trains() -> None:
    trainer = """
    class Trainer:
        def __init__(self):
            self.worst, self.table = 0, {}
        def epoch(self):
            self.worst = 0
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.worst = measure(self.worst, loss.item())
        def fit(self):
            for epoch in range(3):
                self.epoch()
                if self.worst < 0.1:
                    break
    """
    assert parted(ready=trainer, epoch="Trainer().fit()")


def test_the_variable_of_a_comprehension_is_its_own() -> None:
    """What one comprehension calls `x` says nothing of the `x` of another."""
    ready = """
sizes = {x: len(data) for x in ["train"]}
names = ["a", "b"]
first = next(iter(loader))
print([names[x] for x in first[1]])
best = 0
"""
    loss = "loss = F.cross_entropy(model(x), y)\ntotal += loss.item()"
    conversion = convert(
        ready=ready,
        loss=loss,
        epoch="if total / sizes['train'] > best:\n    best = total\n    torch.save(model.state_dict(), 'a')",
    )
    assert not named(conversion)


def test_a_variable_that_a_comprehension_shares_with_the_training_loop() -> None:
    """The validation's loader stays whole, so that its figure is the same everywhere."""
    epoch = """
    found = 0
    for batch in DataLoader(data, batch_size=1):
        a, _ = [_.float() for _ in batch]
        found += math.log(model(a).mean().item())
    if found > best:
        best = found
        torch.save(model.state_dict(), "a")
    """
    loss = "x, _ = [_.float() for _ in (x, y)]\nloss = F.cross_entropy(model(x), y)"
    conversion = convert(imports="import math", ready="best = 0", loss=loss, epoch=epoch)
    assert not named(conversion)


@pytest.mark.parametrize("drawn", ["next(enumerate(test_loader))", "next(enumerate(test_loader, 0))"])
def test_a_batch_that_is_drawn_by_hand_from_an_enumeration(drawn: str) -> None:
    loop = "for a, b in test_loader:\n    print(model(a).argmax(1) == b)\n"
    epoch = f"j, (a, b) = {drawn}\nacc = (model(a).argmax(1) == b).float().mean().item()\nif acc > 0.9: break"
    assert parted(epoch=loop + epoch)


def test_a_module_keeps_nothing_of_what_its_functions_are_handed(tmp_path: Path) -> None:
    """What another function of it gives back is no figure; what one gives back of a figure is."""
    (tmp_path / "helpers.py").write_text(
        "import json\n\n\ndef show(x):\n    print(x.shape)\n\n\n"
        "def best():\n    return json.load(open('best.json'))\n\n\ndef half(x):\n    return x / 2\n"
    )

    def told(test: str) -> bool:
        loss = "loss = F.cross_entropy(model(x), y)\nmost = measure(most, loss.item())"
        text = frame(
            imports="import helpers\nfrom m import measure",
            ready="most = 0",
            batch="helpers.show(x)",
            loss=loss,
            epoch=f"if {test} > 3: break",
        )
        conversion = convert_source(Source.from_text(text, tmp_path / "main.py"))
        assert conversion.status == "converted", conversion.reason
        prove([conversion], conversion)
        return named(conversion)

    assert not told("helpers.best()")
    assert told("helpers.half(most)")


RANKER = """
class Ranker:
    def __init__(self):
        self.ranks = torch.zeros(2)
    def rank(self, grad):
        self.ranks += grad.abs().sum(0)
    def rank_layer(self, module, given, grads):
        self.ranks += grads[0].abs().sum(0)
ranker = Ranker()
"""


@pytest.mark.parametrize(
    "epoch",
    [
        "model.weight.data[int(train_epoch())] = 0",
        "worst = train_epoch()\nwith torch.no_grad():\n    model.weight[0].mul_(worst)",
    ],
)
def test_figures_that_decide_what_is_changed_in_the_model(epoch: str) -> None:
    assert parted(ready=LARGEST, epoch=epoch)
    reduced = LOOP.format(fresh="kept = 0", body="kept += loss.item()", result="kept")
    assert not parted(ready=reduced, epoch=epoch)


@pytest.mark.parametrize(
    "epoch",
    [
        "train_epoch()\nmodel.weight.data[0] = 0",
        "from m import load\nmodel = load(model, 'best.pt')\ntrain_epoch()",
        "decay = 0.9\ntrain_epoch()\nfor p in model.parameters(): p.data.mul_(decay)",
    ],
)
def test_changes_of_the_model_that_are_the_same_on_every_process(epoch: str) -> None:
    assert not parted(ready=LARGEST, epoch=epoch)


@pytest.mark.parametrize(
    ("ready", "batch"),
    [
        ("", "model(x).register_hook(ranker.rank)\n"),
    ],
)
def test_what_hooks_add_up_is_one_process_s_own(ready: str, batch: str) -> None:
    """The figure is made in the backward, of what the process's own share gives."""
    assert named(convert(ready=RANKER + ready, batch=batch, epoch="print(ranker.ranks)"))


SAVES = """
def save_states(step, extra):
    if {test}:
        torch.save(extra, "extra_%d.pt" % step)
"""


@pytest.mark.parametrize(
    ("test", "extra"),
    [
        ("extra is not None", "model(x) * 2 if args.extra else None"),
        ("extra is not None and extra.dim() == 2", "model(x) * 2 if args.extra else None"),
        ("not (extra is None)", "model(x)"),
        ("extra != None", "x.detach().cpu()"),
        ("extra is not None and extra.shape[1] > 2", "torch.cat([x, x])"),
        ("extra.ndim == 2", "x"),
        ("extra is not None", "doubled(x)"),
    ],
)
def test_whether_something_is_there_is_no_figure(test: str, extra: str) -> None:
    setup = (
        f"import argparse\nargs = argparse.ArgumentParser().parse_args()\n{SAVES.format(test=test)}\n"
        "def doubled(t):\n    if args.half:\n        return None\n    return t * 2\n"
    )
    assert not found(setup=setup, update=f"optimizer.step()\nextra = {extra}\nsave_states(i, extra)")


COUNTING = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.layer = 0, nn.Linear(4, 2)
    def forward(self, x):
        {count}
        return self.layer(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()
    def forward(self, x):
        return {run}
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = {{"calls": []}}
"""
TAKEN = """
def take():
    taken, model.part.calls = model.part.calls, 0
    return taken
def train_epoch():
    calls = 0
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        calls += {value}
    history["calls"].append(calls / len(loader))
"""


@pytest.mark.parametrize(
    ("count", "run", "value", "counted"),
    [
        ("self.calls += int(x.abs().max())", "self.part(x)", "model.part.calls", True),
        ("self.calls += len(x)", "self.part(x)", "take()", True),
        # The sum of all counts so far.
        ("self.calls += 1", "self.part(x)", "model.part.calls", True),
        ("self.calls = 1", "self.part(x)", "model.part.calls", False),
        ("self.calls += len(x)", "self.part(x)", "1", False),
    ],
)
def test_what_a_model_counts_while_it_runs(count: str, run: str, value: str, counted: bool) -> None:
    conversion = convert(
        imports="from solver import solve",
        build=COUNTING.format(count=count, run=run),
        ready=TAKEN.format(value=value),
        epoch="train_epoch()",
        end="print(history)",
    )
    assert any("calls" in f.message for f in conversion.remaining if f.code == "ACC701") is counted


def test_an_entry_of_a_dictionary_of_the_module() -> None:
    body = "kept['hits'] = measure(kept['hits'], loss.item())"
    loop = LOOP.format(fresh="pass", body=body, result="None")
    assert found(ready=f"kept = {{'hits': 0}}\n{loop}", epoch="train_epoch()", end="print(kept)")


BOARD = """
class Board:
    def __init__(self, folder="runs"):
        self.sums, self.seen = {"train": 0.0}, 0
        self.folder = folder
    def update(self, i, value, mode):
        value = float(value)
        self.sums[mode] += value
        self.seen = i
    def show(self, mode):
        mean = self.sums[mode] / (self.seen + 1)
        self._print(mode, mean)
    def ask(self):
        print(self.seen)
    def _print(self, mode, text):
        print(mode, text)
"""


@pytest.mark.parametrize(
    ("body", "behind", "shown"),
    [
        ("board.update(i, loss.item(), 'train')", "board.show('train')", True),
        # Where it lies is what it was made with.
        ("board.update(i, loss.item(), 'train')", "print(board.folder)", False),
        # A count of steps is a note of the summary.
        ("board.update(i, loss.item(), 'train')", "board.ask()", False),
        ("board.update(i, 1.0, 'train')", "board.show('train')", False),
        ("board.update(i, loss.item(), 'train'); board.show('train')", "pass", False),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_an_object_keeps_and_shows(
    tmp_path: Path, body: str, behind: str, shown: bool, elsewhere: bool
) -> None:
    if elsewhere:
        (tmp_path / "boards.py").write_text(BOARD)
    script = frame(
        imports="from boards import Board" if elsewhere else "",
        setup="" if elsewhere else BOARD,
        ready="board = Board()",
        update=f"optimizer.step()\n{body}",
        epoch=behind,
    )
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    prove([conversion], conversion)
    assert ("ACC701" in codes(conversion)) is shown


METERS = """
class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def add(self, value):
        self.sum, self.count = self.sum + value, self.count + 1
    def value(self):
        return self.sum / self.count
"""


TRACKER = """
class Listener:
    def __init__(self, meters):
        self.meters = meters
    def append(self, value):
        for meter in self.meters:
            {told}
class Tracker:
    def __init__(self):
        self.listeners = {{}}
    def track(self, name, *meters):
        {kept}
    def show(self):
        return [m.value() for l in self.listeners.values() for m in l.meters]
def train(tracker):
    losses = tracker.track("loss", Meter())
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return tracker.show()
"""


@pytest.mark.parametrize(
    ("told", "kept", "named"),
    [
        ("meter.add(value)", "self.listeners[name] = Listener(meters); return self.listeners[name]", True),
        ("meter = None", "self.listeners[name] = Listener(meters); return self.listeners[name]", False),
        ("meter.add(value)", "return Listener(meters)", False),
    ],
)
def test_an_object_that_another_one_gives_and_keeps(told: str, kept: str, named: bool) -> None:
    setup = METERS + TRACKER.format(told=told, kept=kept)
    seen = found(setup=setup, ready="tracker = Tracker()", epoch="print(train(tracker))")
    assert seen is named


CRITERION = """
class Both:
    def __init__(self, weight, loss=F.cross_entropy, other=None):
        self.weight, self.loss, self.other, self.seen = weight, loss, other or nn.CrossEntropyLoss(), 0
    def first(self, output, y):
        return self.loss(output, y)
    def __call__(self, output, y):
        {first}return self.weight * self.first(output, y) + self.other(output, y)
both = Both(0.5)
"""


@pytest.mark.parametrize("first", ["", "self.seen += output.sum().item(); "])
def test_a_criterion_of_a_plain_class_keeps_nothing(first: str) -> None:
    conversion = convert(
        setup=CRITERION.format(first=first), loss="loss = both(model(x), y)", end="print(both.seen)"
    )
    assert named(conversion) is bool(first)


EACH_BRANCH = """
if x.sum() > 0:
    kept = x.sum()
elif x.sum() < -1:
    kept = y.sum()
else:
    kept = loss.detach()
"""
CARRIED = EACH_BRANCH.replace("else:", "elif kept > 1:")
INNER = """
for _ in range(3):
    kept = x.sum()
    while kept.sum() > 1:
        kept = x.mean()
"""


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (EACH_BRANCH, False),
        (CARRIED, True),
        (INNER, False),
    ],
)
def test_what_every_batch_makes_anew_in_some_way_is_no_total(body: str, named: bool) -> None:
    seen = found(ready="kept = torch.zeros(1)", update=f"optimizer.step()\n{body}", epoch="print(kept)")
    assert seen is named


HANDED_ON = """
class Log:
    def write_down(self, kept):
        for name, values in kept.items():
            text = ",".join(str(v) for v in values)
            print(name, text)
log = Log()
def measure_one(x, y, kept):
    loss = F.cross_entropy(model(x), y)
    kept["loss"].append(loss.item())
    return loss
def one_step(x, y, kept):
    optimizer.zero_grad()
    measure_one(x, y, kept).backward()
    optimizer.step()
def train_epoch(kept):
    for x, y in loader:
        one_step(x, y, kept)
"""


@pytest.mark.parametrize(("shown", "shows"), [("log.write_down(kept)", True), ("log.write_down({})", False)])
def test_a_dictionary_that_is_handed_from_function_to_function(shown: str, shows: bool) -> None:
    epoch = f"kept = {{'loss': []}}\ntrain_epoch(kept)\n{shown}"
    conversion = convert(ready=HANDED_ON, epoch=epoch)
    assert named(conversion) is shows


KEPT_COUNT = """
def forever(batches):
    while True:
        yield from batches
rounds = {made}
for n, (a, b) in rounds:
    optimizer.zero_grad()
    F.cross_entropy(model(a), b).backward()
    optimizer.step()
    if n % 20 == 0:
        torch.save(model.state_dict(), f"{{n}}.pt")
    if n == 100:
        break
"""


@pytest.mark.parametrize(
    "made",
    [
        "enumerate(forever(loader))",
        "forever(loader)\nrounds = tqdm(enumerate(rounds))",
        "tqdm(enumerate(loader))",
    ],
)
def test_the_number_of_the_round_is_nobody_s_own(made: str) -> None:
    conversion = convert(imports="from tqdm import tqdm", end=KEPT_COUNT.format(made=made))
    assert not named(conversion)
    assert "accelerator.save(" in place_of(conversion.new_text, "end")


def test_what_comes_first_in_another_pair_is_one_s_own() -> None:
    end = KEPT_COUNT.format(made="forever(loader)").replace("(a, b)", "b").replace("model(a)", "model(n)")
    end = end.replace("n % 20 ==", "n.sum() >").replace("n == 100", "n.sum() > 3").replace("{n}.pt", "n.pt")
    assert named(convert(end=end))


def test_what_counts_the_parts_of_a_batch_is_no_figure() -> None:
    batch = "for j, part in enumerate(x):\n    step = i * 8 + int(j)\n    if step % 100 == 0:\n"
    assert not found(batch=f"{batch}        torch.save(model.state_dict(), 'a')")


KEEPING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.fit, self.level = nn.Linear(4, 2), 0, 0
    def forward(self, x):
        return self.part(x)
    def judged(self, output, y, level):
        self.fit, self.level = F.cross_entropy(output, y), level
        self.penalty = self.part.weight.pow(2).sum()
        self.spread = output.std()
        return self.fit + self.penalty
    def latest(self):
        return {"fit": self.spread, "penalty": self.penalty}
"""


@pytest.mark.parametrize(
    "added",
    [
        "total += float(model.spread)",
        "for key, value in model.latest().items():\n    total += float(value)",
        "for key in model.latest():\n    total += float(model.latest()[key])",
        "total += model.level",
    ],
)
def test_what_a_model_keeps_of_its_batch(added: str) -> None:
    """Added up, a setting too is of the rounds of one process."""
    assert found(
        setup=KEEPING,
        build="model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        ready="total = 0",
        loss="loss = model.judged(model(x), y, 3)",
        update=f"optimizer.step()\n{added}",
        end="print(total)",
    )


DRAWN = """
loader = DataLoader(data, batch_size=8, shuffle=True{collate})
batches = iter(loader)
for round in range(9):
    for i in range(2):
        {drawn}
        if {test}:
            batches = iter(loader)
            x, y = next(batches)
        else:
            x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if round % 4 == 0:
        print(round, loss.item())
"""
END = [
    ("batch = next(batches, None)", "batch is None"),
    ("i, batch = next(enumerate(batches), (0, None))", "batch is None"),
]


@pytest.mark.parametrize(("drawn", "test"), END)
def test_all_processes_come_to_the_end_of_their_batches_together(drawn: str, test: str) -> None:
    assert not found(end=DRAWN.format(collate="", drawn=drawn, test=test))


def test_an_iterator_that_is_made_anew_under_a_test_of_the_data_is_no_figure() -> None:
    body = "if loss.item() > 3:\n            others = iter(test_loader)"
    ready = LOOP.format(fresh="others = iter(test_loader)", body=body, result="next(others)")
    assert not found(ready=ready, epoch="print(train_epoch())")


ENTRIES = """
totals = {"steps": 0, "loss": 0.0, "name": "run"}

def path_of(totals):
    return totals["name"] + ".pt"

def loss_of(given):
    return given["loss"]

def share(totals, x):
    totals["loss"] += x.item()

def train_epoch(totals):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        share(totals, loss)
        totals["steps"] += 1
    return totals["steps"]
"""
SAVE = "torch.save(model.state_dict(), 'a')"


@pytest.mark.parametrize(
    ("epoch", "told"),
    [
        (f"train_epoch(totals)\nif totals['steps'] % 10 == 0:\n    {SAVE}", False),
        (f"if train_epoch(totals) % 10 == 0:\n    {SAVE}", False),
        (f"train_epoch(totals)\nif path_of(totals) != 'last.pt':\n    {SAVE}", False),
        (f"train_epoch(totals)\nif totals['loss'] < 1:\n    {SAVE}", True),
        (f"train_epoch(totals)\nif loss_of(totals) < 1:\n    {SAVE}", True),
        (f"train_epoch(totals)\nif loss_of(given=totals) < 1:\n    {SAVE}", True),
        ("train_epoch(totals)\nprint(totals)", True),
    ],
)
def test_one_entry_of_what_functions_are_handed_says_nothing_of_the_others(
    epoch: str, told: set[str]
) -> None:
    """A count of steps beside a sum of losses is the same on every process."""
    assert found(ready=ENTRIES, epoch=epoch) == told
