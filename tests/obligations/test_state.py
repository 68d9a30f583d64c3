"""What the engine says of state that is trained with, of losses of a share, and of meetings that some miss."""

from __future__ import annotations

import textwrap

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, Validation, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import copy
import optuna
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator({accelerator})
data = torch.load("data.pt")
model = nn.Linear(4, 2)
{build}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
{ready}
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
{loss}
        accelerator.backward(loss)
        optimizer.step()
{epoch}
{end}
"""
PLAIN = "loss = F.cross_entropy(model(x), y)"


def checked(accelerator: str = "", loss: str = PLAIN, epoch: str = "", **places: str) -> Validation:
    text = FRAME.format(
        accelerator=accelerator,
        loss=_indented(loss, 8),
        epoch=_indented(epoch, 4),
        **{name: textwrap.dedent(places.get(name, "")) for name in ("build", "ready", "end")},
    )
    return validate(text, None, KNOWLEDGE)


def _indented(text: str, width: int) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * width)


def named(found: Validation, *demands: str) -> list[Obligation]:
    return [one for one in found.of(Status.NAMED) if one.demand in demands]


PARTED = {
    "weights are kept where a figure of one rank is low": {
        "ready": "best, lowest = None, 1e9",
        "epoch": """\
            if loss.item() < lowest:
                best = copy.deepcopy(model.state_dict())
            """,
        "end": "model.load_state_dict(best)",
    },
    "a rate is lowered by a figure of one rank": {
        "ready": "rate, best = 0.1, 9.0",
        "epoch": """\
            if loss.item() > best:
                rate = rate * 0.1
            for group in optimizer.param_groups:
                group["lr"] = rate
            """,
    },
    "a plateau of one rank's figure": {
        "ready": "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
        "epoch": "scheduler.step(loss.item())",
    },
    "a plateau of one rank's figure by its name": {
        "ready": "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
        "epoch": "scheduler.step(metrics=loss.item())",
    },
    "what a loop found out of its batches takes a weight out": {
        "ready": "found = torch.zeros(2)",
        "loss": """\
            out = model(x)
            loss = F.cross_entropy(out, y)
            found += out.detach().abs().sum(0)
            """,
        "end": "model.weight.data[found.argmin()] = 0",
    },
    "a forward sets a parameter from its first batch": {
        "build": """\
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear = nn.Linear(4, 2)
                    self.shift = nn.Parameter(torch.zeros(4))
                    self.initialized = False
                def forward(self, x):
                    if not self.initialized:
                        self.shift.data.copy_(-x.mean(0))
                        self.initialized = True
                    return self.linear(x + self.shift)
            model = Net()
            """,
    },
    "a forward moves a buffer on": {
        "build": """\
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear = nn.Linear(4, 2)
                    self.register_buffer("codes", torch.zeros(4))
                def forward(self, x):
                    self.codes = 0.9 * self.codes + 0.1 * x.mean(0)
                    return self.linear(x - self.codes)
            model = Net()
            """,
    },
    "statistics are taken from a share of the loader": {"end": "update_bn(loader, model)"},
}
TOGETHER = {
    "the figure is reduced first": {
        "ready": "best, lowest = None, 1e9",
        "epoch": """\
            if accelerator.reduce(loss, reduction="mean").item() < lowest:
                best = copy.deepcopy(model.state_dict())
            """,
        "end": "model.load_state_dict(best)",
    },
    "weights are held within bounds": {
        "loss": "for weight in model.parameters(): weight.data.clamp_(-1, 1)\n" + PLAIN
    },
    "weights are drawn before they are trained": {"build": "nn.init.normal_(model.weight)"},
    "an attribute that is no parameter keeps what a forward made": {
        "build": """\
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear = nn.Linear(4, 2)
                    self.features = None
                def forward(self, x):
                    self.features = self.linear(x)
                    return self.features
            model = Net()
            """,
    },
    "what a batch adds to a buffer is reduced": {
        "build": """\
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.linear = nn.Linear(4, 2)
                    self.register_buffer("codes", torch.zeros(4))
                def forward(self, x):
                    self.codes.copy_(accelerator.reduce(x.mean(0), reduction="mean"))
                    return self.linear(x - self.codes)
            model = Net()
            """,
    },
}


@pytest.mark.parametrize("case", PARTED.values(), ids=PARTED)
def test_state_that_parts_is_named(case: dict[str, str]) -> None:
    assert named(checked(**case), "same")


@pytest.mark.parametrize("case", TOGETHER.values(), ids=TOGETHER)
def test_state_that_stays_the_same_is_not_named(case: dict[str, str]) -> None:
    assert not checked(**case).of(Status.NAMED)


def test_a_search_chooses_on_every_process() -> None:
    search = """\
        def objective(trial):
            return trial.suggest_float("rate", 0, 1)
        study = optuna.create_study()
        study.optimize(objective, n_trials=20)
        """
    assert [one.sink for one in named(checked(end=search), "once")] == ["search.run"]


def test_what_is_drawn_early_is_assumed_to_be_the_same() -> None:
    early = "import torch\nfrom accelify.runtime import Accelerator\n{}order = torch.randperm(64)\nAccelerator()\n"
    for seed, count in (("", 1), ("torch.manual_seed(0)\n", 0)):
        assumed = validate(early.format(seed), None, KNOWLEDGE).assumptions
        assert len([one for one in assumed if "drawn at random before" in one.text]) == count


# What only a part of a batch, or its samples together, make of a loss.
INEXACT = {
    "a mean over chosen samples": 'each = F.cross_entropy(model(x), y, reduction="none")\nloss = each[y > 0].mean()',
    "a mean over classes that count": "loss = F.cross_entropy(model(x), y, ignore_index=0)",
    "a mean by weights of classes": "loss = nn.CrossEntropyLoss(weight=torch.ones(2))(model(x), y)",
    "a ratio of sums": ("p = model(x).softmax(1)[:, 1]\nloss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())"),
    "the root of a mean": "loss = torch.sqrt(F.mse_loss(model(x)[:, 0], y.float()))",
    "an entropy of means": "m = model(x).softmax(1).mean(dim=0)\nloss = (m * torch.log(m)).sum()",
    "samples against each other": "out = model(x)\nloss = (out @ out.t()).mean()",
    "distances of samples": "out = model(x)\nloss = torch.cdist(out, out).mean()",
    "the logarithm of a sum": "loss = torch.log(torch.sum(torch.exp(model(x))))",
    "samples divided by their sum": (
        "q = model(x).softmax(1)\nt = q ** 2 / q.sum(0)\nloss = F.kl_div(q.log(), t)"
    ),
}


@pytest.mark.parametrize("loss", INEXACT.values(), ids=INEXACT)
def test_a_loss_of_a_share_is_not_that_of_the_batch(loss: str) -> None:
    for accelerator in ("", "split_batches=True"):
        assert named(checked(accelerator, loss=loss), "loss"), accelerator


def test_samples_that_are_mixed_in_another_order_are_not_compared() -> None:
    loss = "order = torch.randperm(x.size(0))\nloss = F.cross_entropy(model(0.5 * x + 0.5 * x[order]), y)"
    assert not named(checked(loss=loss), "loss")


def test_a_plain_loss_is_proved() -> None:
    for accelerator in ("", "split_batches=True"):
        assert {one.status for one in checked(accelerator).obligations} == {Status.PROVED}


def test_elements_of_a_batch_are_trained_on_one_by_one() -> None:
    loss = "for part in x:\n    optimizer.step()\n" + PLAIN
    elements = (
        "for batch in loader:\n    for part in batch:\n        accelerator.backward(model(part).mean())\n"
    )
    assert named(checked(end=elements), "rounds")
    assert named(checked(loss=loss), "rounds", "all ranks")


@pytest.mark.parametrize(("drops", "names"), [("True", 1), ("False", 0)])
def test_an_evaluation_that_leaves_batches_out(drops: str, names: int) -> None:
    end = f"""\
        total = 0
        for x, y in accelerator.prepare(DataLoader(data, batch_size=8, drop_last={drops})):
            total += accelerator.reduce(model(x).sum(), reduction="sum").item()
        """
    assert len(named(checked(end=end), "rounds")) == names


def test_what_only_the_first_round_does_is_met() -> None:
    first = "first = True\nfor x, y in loader:\n    if first:\n        print(3)\n    first = False\n"
    assert [one.sink for one in named(checked(end=first), "once")] == ["terminal.write"]


DRAWS = """\
import random
from accelify.runtime import Accelerator
accelerator = Accelerator()
random.seed(0)
{first}
rate = random.random()
if accelerator.is_main_process:
    print(rate)
"""


def test_draws_of_some_processes_part_the_stream() -> None:
    found = validate(DRAWS.format(first="name = random.randint(0, 9)"), None, KNOWLEDGE)
    assert not found.of(Status.NAMED)
    some = "if accelerator.is_main_process: name = random.randint(0, 9)"
    (one,) = validate(DRAWS.format(first=some), None, KNOWLEDGE).of(Status.NAMED)
    assert "draws on some processes only" in one.message
    assert not validate(DRAWS.format(first=some + "\nrandom.seed(1)"), None, KNOWLEDGE).of(Status.NAMED)


ALONE = """\
if accelerator.is_main_process:
    model.eval()
    torch.save(accelerator.unwrap_model(model)(x), "shown.pt")
"""


@pytest.mark.parametrize(
    ("epoch", "right"),
    [
        (ALONE, False),
        (ALONE.replace("model.eval()", "model.train(False)"), False),
        (f"{ALONE}    model.train()", True),
        (
            f"{ALONE}    model.train(before)".replace(
                "    model.eval", "    before = model.training\n    model.eval"
            ),
            True,
        ),
        (f"{ALONE}model.train()", True),
        (ALONE.replace("    model.eval()\n", "").replace("if acc", "model.eval()\nif acc"), True),
    ],
)
def test_a_mode_that_one_process_alone_sets(epoch: str, right: bool) -> None:
    found = named(checked(epoch=epoch), "same")
    assert [
        "`model` is in another mode on the main process than on the others" in one.message for one in found
    ] == ([] if right else [True])


SHARES = """\
from torch.utils.data import TensorDataset, WeightedRandomSampler
hard = torch.ones(64)
for again in range(3):
    loader = accelerator.prepare(DataLoader({made}))
    rows = []
    for x, y, i in loader:
        each = F.cross_entropy(model(x), y, reduction="none")
        {gather}hard[i] = each.detach()
        rows.append(x)
"""
WEIGHED = "data, batch_size=8, sampler=WeightedRandomSampler(hard, 64)"
OF_ROWS = "TensorDataset(torch.cat(rows)) if again else data, batch_size=8"


@pytest.mark.parametrize(
    ("made", "gather", "right"),
    [
        (WEIGHED, "", False),
        (WEIGHED, "each, i = accelerator.gather_for_metrics((each, i)); ", True),
        (OF_ROWS, "", False),
        (OF_ROWS, "x = accelerator.gather_for_metrics(x); ", True),
        ("data, batch_size=8, shuffle=True", "", True),
    ],
)
def test_what_is_shared_out_is_the_same_on_every_rank(made: str, gather: str, right: bool) -> None:
    found = named(checked(end=SHARES.format(made=made, gather=gather)), "same")
    assert ["the ranks share out `loader`" in one.message for one in found] == ([] if right else [True])


GROWING = """\
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.Linear(4, n)

    def forward(self, x):
        return self.layer(x)

    def again(self, n):
        {again}

net = {net}
net.again(3)
"""


@pytest.mark.parametrize(
    ("again", "net", "right"),
    [
        ("self.__init__(n)", "accelerator.prepare(Net(2))", False),
        ("self.__init__(n)", "Net(2)", True),
        ("self.layer = nn.Linear(4, n)", "accelerator.prepare(Net(2))", True),
    ],
)
def test_a_prepared_model_that_calls_its_constructor(again: str, net: str, right: bool) -> None:
    found = named(checked(end=GROWING.format(again=again, net=net)), "same")
    assert ["new parameters" in one.message for one in found] == ([] if right else [True])


@pytest.mark.parametrize("name", ['"run" + str(time.time())', 'f"run{time.time()}"', '"run"'])
def test_the_time_in_the_name_of_a_metric_is_no_part_of_its_figures(name: str) -> None:
    build = (
        f"import time\nimport evaluate\nmetric = evaluate.load('accuracy', experiment_id={name})\nbest = 0"
    )
    epoch = """\
        acc = 0
        for x, y in DataLoader(data, batch_size=8):
            metric.add_batch(predictions=model(x).argmax(1), references=y)
        acc += metric.compute()["accuracy"]
        if acc > best:
            break
        """
    assert named(checked(build=build, epoch=epoch), "all ranks", "content") == []


FORGET = """
for part in swa.modules():
    if isinstance(part, nn.BatchNorm1d):
        {}
"""
ZEROS = "part.running_mean = torch.zeros_like(part.running_mean)"
PASS = """
swa.train()
with torch.no_grad():
    for x, y in {}:
        swa(x)
"""
AVERAGED = "swa = copy.deepcopy(accelerator.unwrap_model(model))"


@pytest.mark.parametrize("forget", [ZEROS, "part.reset_running_stats()", "part.running_var.fill_(1)"])
@pytest.mark.parametrize(
    "model", [AVERAGED, "swa = torch.optim.swa_utils.AveragedModel(model)", "swa = model"]
)
def test_statistics_of_batches_that_are_made_anew_of_a_share(forget: str, model: str) -> None:
    again = FORGET.format(forget) + PASS
    found = named(checked(ready=model, end=again.format("loader")), "same")
    assert ["anew, of each process's share" in one.found for one in found] == [True]
    assert not named(checked(ready=model, end=again.format("DataLoader(data)")), "same")


@pytest.mark.parametrize(
    "end",
    [
        PASS.format("loader"),
        FORGET.format(ZEROS),
        (FORGET.format(ZEROS) + PASS.format("loader")).replace("train", "eval"),
    ],
)
def test_statistics_that_go_on_or_are_not_made(end: str) -> None:
    assert not named(checked(ready=AVERAGED, end=end), "same")
    assert not named(checked(ready=FORGET.format(ZEROS).replace("swa", "model")), "same")
    one = FORGET.format(ZEROS) + "swa.train()\nx, y = next(iter(loader))\nswa(x)\n"
    assert not named(checked(ready=AVERAGED, end=one), "same")


@pytest.mark.parametrize(
    "kept", ["register_buffer('codes', torch.zeros(4))", "codes = nn.Parameter(torch.zeros(4))"]
)
def test_a_buffer_is_that_of_the_main_process_in_the_next_forward(kept: str) -> None:
    """What the wrapper sends in each pass is lost elsewhere; only parameters part."""
    net = f"""\
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 2)
                self.{kept}
            def forward(self, x):
                found = self.linear(x - self.codes)
                self.codes[:2] = x.mean(0)[:2]
                return found
        model = Net()
        """
    (one,) = named(checked(build=net), "same")
    is_sent = "buffer" in kept
    assert ("is lost; gather or reduce what is written first" in one.found) is is_sent
    assert ("they train other models from then on" in one.found) is not is_sent
