"""How losses are reduced."""

from __future__ import annotations

import pytest

from accelify.analysis.losses.reductions import LossReductions
from tests.analysis.support import model_of

SCRIPT = """
x, y = torch.randn(4, 2), torch.randn(4, 2)
batch_size = args.batch_size
model = nn.Linear(2, 2)
output = model(x)
{loss}
loss.backward()
"""
SQUARES = "((output - y) ** 2)"
FUNCTION = "def crit(a, b):\n    return {}\n"


def reduction(loss: str, batch_size: str = "per-process") -> str:
    script = model_of(SCRIPT.format(loss=loss))
    return LossReductions(script, batch_size).of(script.backwards[0].loss)


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        ("loss = F.mse_loss(output, y)", "mean"),
        ("loss = F.mse_loss(output, y, reduction='mean')", "mean"),
        ("loss = F.mse_loss(output, y, reduction='sum')", "sum"),
        ("loss = F.mse_loss(output, y, size_average=False)", "sum"),
        ("loss = F.kl_div(output, y, reduction='batchmean')", "mean"),
        ("loss = F.mse_loss(output, y, reduction='none').mean()", "mean"),
        ("loss = F.mse_loss(output, y, reduction='none').sum()", "sum"),
        ("loss = nn.MSELoss()(output, y)", "mean"),
        ("loss = nn.MSELoss(reduction='sum')(output, y)", "sum"),
        ("c = nn.CrossEntropyLoss(reduction='sum')\nloss = c(output, y)", "sum"),
        (f"loss = {SQUARES}.mean()", "mean"),
        (f"loss = torch.mean({SQUARES})", "mean"),
        (f"loss = {SQUARES}.sum()", "sum"),
        (f"loss = torch.sum({SQUARES})", "sum"),
        (f"loss = -torch.sum({SQUARES}) * 3", "sum"),
        (f"loss = {SQUARES}.sum(1).mean()", "mean"),
        (f"loss = {SQUARES}.sum(dim=0)", "sum"),
        ("loss = F.mse_loss(output, y) + 0.1", "mean"),
        ("loss = F.mse_loss(output, y) + 2 * F.l1_loss(output, y)", "mean"),
        ("loss = F.mse_loss(output, y) + F.mse_loss(output, y, reduction='sum')", "mixed"),
        ("loss = F.mse_loss(output, y) if args.a else F.l1_loss(output, y, reduction='sum')", "mixed"),
        ("loss = 0\nfor k in range(3):\n    loss += F.mse_loss(output, y)", "mean"),
        ("loss = 0\nloss += F.mse_loss(output, y, reduction='sum')", "sum"),
        (FUNCTION.format("((a - b) ** 2).sum()") + "loss = crit(output, y)", "sum"),
        (FUNCTION.format("(a - b).mean(), (a - b).sum()") + "loss, other = crit(output, y)", "mean"),
        (FUNCTION.format("(a - b).mean(), (a - b).sum()") + "other, loss = crit(output, y)", "sum"),
        ("class C(nn.Module):\n    def forward(self, a):\n        return a.sum()\nloss = C()(output)", "sum"),
        ("loss = mystery(output)", "unclear"),
        (f"num_classes = 2\nloss = {SQUARES}.sum() / num_classes", "sum"),
        (f"loss = {SQUARES}.sum() / args.n_classes / len(x)", "mean"),
        (f"loss = {SQUARES}.sum() / (num_classes * len(x))", "mean"),
        (f"loss = {SQUARES}.mean() / num_classes", "mean"),
        (FUNCTION.format("(a - b).sum() / num_classes") + "def other(a, b):\n    return (a - b).abs().sum()\n"
         "c = crit if args.a else other\nloss = c(output, y) / len(x)", "mean"),
    ],
)  # fmt: skip
def test_reductions(loss: str, wanted: str) -> None:
    assert reduction(loss) == reduction(loss, "total") == wanted


PENALTY = """
penalty = 0
for p in model.parameters():
    penalty += 0.1 * torch.sum(p * p)
"""


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        # What is added to an averaged loss may be the same on every process.
        ("loss = F.mse_loss(output, y) + penalty", "mean"),
        ("loss = F.mse_loss(output, y)\nloss += penalty", "mean"),
        ("loss = penalty * F.mse_loss(output, y)", "mean"),
        ("loss = F.mse_loss(output, y, reduction='sum') if args.a else penalty", "sum"),
        # To a summed one it would be added once by each of them.
        ("loss = F.mse_loss(output, y, reduction='sum') + penalty", "mixed"),
        ("loss = F.mse_loss(output, y, reduction='sum')\nloss += penalty", "mixed"),
        ("loss = penalty\nloss += F.mse_loss(output, y, reduction='sum')", "mixed"),
        ("loss = 0 + penalty + F.mse_loss(output, y, reduction='sum')", "mixed"),
    ],
)
def test_a_penalty_that_is_added_up_over_the_parameters(loss: str, wanted: str) -> None:
    assert reduction(PENALTY + loss) == reduction(PENALTY + loss, "total") == wanted


@pytest.mark.parametrize("divisor", ["x.size(0)", "len(x)", "x.shape[0]", "n"])
def test_a_sum_over_its_own_batch_is_a_mean(divisor: str) -> None:
    for loss in (f"loss = {SQUARES}.sum() / {divisor}", f"loss = {SQUARES}.sum()\nloss /= {divisor}"):
        assert reduction(f"n = x.size(0)\n{loss}") == reduction(f"n = x.size(0)\n{loss}", "total") == "mean"


@pytest.mark.parametrize("shape", ["output.size()", "x.shape"])
@pytest.mark.parametrize("names", ["n, width", "[n, *rest]"])
def test_a_batch_size_that_is_unpacked_from_a_shape(names: str, shape: str) -> None:
    loss = f"{names} = {shape}\nloss = {SQUARES}.sum() / n"
    assert reduction(loss) == reduction(loss, "total") == "mean"
    second = f"width, n = {shape}\nloss = {SQUARES}.sum() / n"
    assert reduction(second, "total") == "sum", "configured, or something else"


@pytest.mark.parametrize("division", ["/ batch_size", "/ args.batch_size", "* (1 / batch_size)"])
def test_a_sum_over_the_configured_batch(division: str) -> None:
    loss = f"loss = {SQUARES}.sum() {division}"
    assert reduction(loss) == "mean"
    assert reduction(loss, "total") == "sum"


def test_a_sum_over_a_constant_is_a_sum() -> None:
    assert reduction(f"loss = {SQUARES}.sum() / 10") == "sum"


BRANCHES = """
def crit(a, b, reduction="mean"):
    loss = (a - b).abs().sum(dim=1)
    if reduction == "none":
        return loss
    elif reduction == "sum":
        return loss.sum()
    else:
        return loss.mean()
"""
CLASS = """
class Crit(nn.Module):
    def __init__(self, gamma=2, size_average=True):
        super().__init__()
        self.size_average = size_average
    def forward(self, a):
        if not self.size_average:
            return a.sum()
        return a.mean()
"""


EITHER = """
def crit(a, mean=True):
    loss = -torch.sum(a)
    return loss / a.size()[0] if mean else loss
"""


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (f"{EITHER}loss = crit(output)", "mean"),
        (f"{EITHER}loss = crit(output, False)", "sum"),
        (f"{EITHER}loss = crit(output, args.mean)", "mixed"),
        (f"{BRANCHES}loss = crit(output, y)", "mean"),
        (f"{BRANCHES}loss = crit(output, y, reduction='sum')", "sum"),
        (f"{BRANCHES}loss = crit(output, y, args.reduction)", "mixed"),
        (f"{CLASS}c = Crit()\nloss = c(output)", "mean"),
        (f"{CLASS}c = Crit(size_average=False)\nloss = c(output)", "sum"),
        (f"{CLASS}c = Crit(size_average=args.mean)\nloss = c(output)", "mixed"),
    ],
)
def test_branches_that_constants_decide(loss: str, wanted: str) -> None:
    assert reduction(loss) == wanted


def test_a_sum_times_a_weight_over_the_batch_is_a_mean() -> None:
    kl = "kl = nn.KLDivLoss(reduction='sum')\nn = len(x)\n"
    assert reduction(f"{kl}loss = F.mse_loss(output, y) + args.beta * (1.0 / n) * kl(output, y)") == "mean"


def test_a_sum_over_classes_of_what_was_averaged() -> None:
    averaged = "p = torch.softmax(output, dim=1).mean(0)\n"
    assert reduction(f"{averaged}loss = F.mse_loss(output, y) + torch.sum(p * torch.log(p))") == "mean"
    assert reduction(f"{averaged}loss = F.mse_loss(output, y) + (p * p.log()).sum()") == "mean"


def test_a_mask_that_is_made_of_itself() -> None:
    loss = "mask = torch.ones(4, 1)\nmask = mask * (y != 0)\nloss = (mask * ((output - y) ** 2)).sum()"
    assert reduction(loss) == "sum"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        # What an inner loop tried under the same name is left behind.
        (
            "for k in range(3):\n    loss = (a - b).sum()\n    b = grad(loss, [b])[0]\nloss = (a - b).mean()",
            "mean",
        ),
        ("loss = (a - b).sum()\nwith torch.no_grad():\n    loss = (a - b).mean()", "mean"),
        ("loss = (a - b).sum()\nif k:\n    loss = (a - b).mean()\nelse:\n    loss = a.mean()", "mean"),
        ("if k:\n    loss = (a - b).sum()\n    return loss\nloss = (a - b).mean()", "mixed"),
        ("loss = (a - b).sum()\nif k:\n    loss = (a - b).mean()", "mixed"),
        ("loss = (a - b).sum()\nfor k in range(3):\n    loss = (a - b).mean()", "mixed"),
        ("loss = (a - b).sum()\ntry:\n    loss = (a - b).mean()\nexcept ValueError:\n    pass", "mixed"),
        ("loss = a.mean()\nfor k in range(3):\n    t = loss\n    loss = a.sum()\nloss = t", "mixed"),
        # What a new value is made of is not.
        ("loss = (a - b).sum()\nloss = loss + a.mean()", "mixed"),
        ("loss = (a - b).sum()\nloss = 0.5 * loss\nloss = loss / len(a)", "mean"),
        ("loss = (a - b).sum()\nloss = torch.mean(loss)", "sum"),
        ("loss = F.mse_loss(a, b, reduction='none')\nloss = loss.mean()", "mean"),
        ("loss = 0\nfor k in range(3):\n    loss = loss + (a - b).sum()", "sum"),
        (
            "loss = a.mean()\n"
            + "".join(f"if k > {k}:\n    loss = loss + b.mean() * {k}\n" for k in range(40)),
            "mean",
        ),
    ],
)
def test_the_value_that_reaches_the_end(lines: str, wanted: str) -> None:
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    assert reduction(f"def crit(a, b, k=0):\n{body}    return loss\nloss = crit(output, y, args.k)") == wanted


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("each = SQUARES.sum(1)\nfor i in range(len(each)):\n    loss += each[i]", "sum"),
        ("each = SQUARES.sum(1)\nfor i in range(x.size(0)):\n    loss += w * each[i]", "sum"),
        ("each = SQUARES.sum(1)\nfor i in range(len(each)):\n    loss += each[i]\nloss /= len(each)", "mean"),
        ("each = SQUARES.sum(1)\nfor i in range(len(each)):\n    loss += each[i]\nloss += y.mean()", "mixed"),
        ("each = [y.mean(), x.mean()]\nfor i in range(len(each)):\n    loss += each[i]", "unclear"),
        ("for i in range(len(x)):\n    loss += F.mse_loss(output[i], y[i])", "mean"),
    ],
)
def test_samples_that_a_loop_adds_up(lines: str, wanted: str) -> None:
    assert reduction("loss = torch.zeros(1)\n" + lines.replace("SQUARES", SQUARES)) == wanted


def test_groups_of_samples_that_a_loop_adds_up() -> None:
    script = model_of(
        """
        model = nn.Linear(2, 2)
        loader = DataLoader(data)
        for x, y, groups in loader:
            each, loss = model(x) - y, torch.zeros(1)
            for start, end in groups.data:
                part = each[start:end]
                loss += part.min()
            loss.backward()
        """
    )
    assert LossReductions(script, "per-process").of(script.backwards[0].loss) == "sum"


CHOSEN = """
class Summed(nn.Module):
    def {method}(self, a, b):
        return {first}

class Meant(nn.Module):
    def {method}(self, a, b):
        return {second}

losses = {{"a": {{"sum": Summed}}, "b": {{"mean": Meant}}}}
judge = losses[args.kind][args.name]()
"""


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("((a - b) ** 2).sum()", "((a - b) ** 2).mean()", "mixed"),
        ("((a - b) ** 2).mean()", "((a - b) ** 2).sum()", "mixed"),
        ("((a - b) ** 2).sum()", "(a - b).abs().sum()", "sum"),
        ("((a - b) ** 2).mean()", "(a - b).abs().mean()", "mean"),
    ],
)
@pytest.mark.parametrize("method", ["forward", "__call__", "judged"])
def test_a_class_of_a_table_is_any_of_them(method: str, first: str, second: str, wanted: str) -> None:
    call = "judge.judged" if method == "judged" else "judge"
    table = CHOSEN.format(method=method, first=first, second=second)
    assert reduction(f"{table}loss = {call}(output, y)") == wanted


NAMED = """
from collections import namedtuple
from typing import NamedTuple
{made}
def crit(a, b):
    return {given}
more, loss = crit(output, y)
"""
SUMMED = "F.mse_loss(a, b, reduction='sum')"


@pytest.mark.parametrize(
    ("made", "given", "wanted"),
    [
        ("", f"b, {SUMMED}", "sum"),
        ("", f"*b, {SUMMED}", "unclear"),
        ("Pair = namedtuple('Pair', ['more', 'loss'])", f"Pair(b, {SUMMED})", "sum"),
        ("Pair = namedtuple('Pair', 'more, loss')", f"Pair(loss={SUMMED}, more=b)", "sum"),
        ("Pair = namedtuple('Pair', field_names=('more', 'loss'))", f"Pair(b, {SUMMED})", "sum"),
        ("class Pair(namedtuple('Pair', 'more loss')):\n    pass", f"Pair(b, {SUMMED})", "sum"),
        ("Pair = NamedTuple('Pair', [('more', int), ('loss', int)])", f"Pair(b, loss={SUMMED})", "sum"),
        ("class Pair(NamedTuple):\n    more: int\n    loss: int", f"Pair(b, {SUMMED})", "sum"),
        ("class Pair(list):\n    more: int\n    loss: int", f"Pair(b, {SUMMED})", "unclear"),
        ("Pair = namedtuple('Pair', names)", f"Pair(b, {SUMMED})", "unclear"),
        ("Pair = namedtuple('Pair', ['more', 'loss'])", f"Pair(*b, {SUMMED})", "unclear"),
    ],
)
def test_a_part_of_what_a_function_gives_back(made: str, given: str, wanted: str) -> None:
    assert reduction(NAMED.format(made=made, given=given)) == wanted
