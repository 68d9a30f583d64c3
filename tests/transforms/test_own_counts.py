"""Losses averaged over a count within the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, codes, convert, frame, place_of

EACH = 'each = F.cross_entropy(model(x), y, reduction="none")\n'


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        ("", f"{EACH}positive = y != 0\nloss = each[positive].sum() / positive.sum().float()"),
        ("", f"{EACH}positive = y != 0\nN = positive.data.sum()\nloss = (each * positive).sum()\nloss /= N"),
        ("", f"{EACH}loss = torch.sum(each * (y > 0)) / max(1, torch.sum(y > 0))"),
        ("", f"{EACH}loss = each[y > 0].mean()"),
        ("", f"{EACH}count = sum((t != 0).sum() for t in [y])\nloss = each.sum() / count"),
        ("", "loss = F.cross_entropy(model(x), y, ignore_index=0)"),
        ("criterion = nn.CrossEntropyLoss(ignore_index=0)", "loss = criterion(model(x), y)"),
        ("criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0]))", "loss = criterion(model(x), y)"),
        (
            "criterion = nn.NLLLoss2d(torch.tensor([1.0, 2.0]))",
            "loss = criterion(model(x).log_softmax(1)[:, :, None, None], y[:, None, None])",
        ),
        (
            "import numpy as np",
            f"{EACH}entries = np.sum(y.numpy() * y.numpy())\n"
            "loss = F.cross_entropy(model(x), y) + each.sum() / float(entries)",
        ),
        (
            "import numpy as np\n"
            "def scored(scores, y, counts):\n"
            "    entries = np.count_nonzero(counts)\n"
            "    return F.cross_entropy(scores, y) + torch.sum(scores ** 2) / float(entries)",
            "loss = scored(model(x), y, y.numpy())",
        ),
        (
            "class Scored(nn.Module):\n"
            "    def forward(self, scores, y):\n"
            "        count = (y != 0).sum()\n"
            '        return F.cross_entropy(scores, y, reduction="none")[y != 0].sum() / count.float()\n'
            "criterion = Scored()",
            "loss = criterion(model(x), y)",
        ),
        (
            "class BoxLoss(nn.Module):\n"
            "    def forward(self, scores, y):\n"
            "        found, wanted = scores[:, 0], y\n"
            "        size = found.size(0)\n"
            "        kinds = torch.LongTensor(size)\n"
            "        match(found, wanted, kinds)\n"
            "        positive = kinds > 0\n"
            "        each = positive.sum(dim=0, keepdim=True)\n"
            "        N = each.data.sum()\n"
            "        loss = F.cross_entropy(scores, y, reduction='sum')\n"
            "        loss /= N\n"
            "        return loss\n"
            "criterion = BoxLoss()",
            "loss = criterion(model(x), y)",
        ),
        (
            "class BoxLoss(nn.Module):\n"
            "    def forward(self, scores, y):\n"
            "        positive = y > 0\n"
            "        first = F.smooth_l1_loss(scores[positive][:, 0], y[positive].float(), reduction='sum')\n"
            "        second = F.cross_entropy(scores, y, reduction='sum')\n"
            "        N = max(positive.long().sum().float(), 1)\n"
            "        first /= N\n"
            "        second /= N\n"
            "        return first, second\n"
            "criterion = BoxLoss()",
            "boxes, kinds = criterion(model(x), y)\nloss = 2 * boxes + kinds",
        ),
    ],
)
def test_losses_that_each_process_averages_over_a_count_of_its_own(setup: str, loss: str) -> None:
    conversion = convert(setup=setup, loss=loss)
    assert [f.code for f in conversion.remaining].count("ACC425") == 1
    said = next(f.message for f in conversion.remaining if f.code == "ACC425")
    assert "accelerator.backward(loss, weight=...)" in said


KEPT = """
import numpy as np

class Net(nn.Linear):
    def forward(self, x):
        self.kept = super().forward(x)
        return self.kept

    def loss(self, scores, y, counts):
        entries = {entries}
        self.extra = {kept} * 2
        if self.training:
            self.extra = torch.sum(self.extra) / float(entries)
            return F.cross_entropy(scores, y) + self.extra
        return F.cross_entropy(scores, y)
"""


@pytest.mark.parametrize(
    ("kept", "entries", "found"),
    [
        ("self.kept ** 2", "np.sum(counts * counts)", True),
        ("self.kept ** 2", "len(scores)", False),
        ("self.weight ** 2", "len(scores)", False),
    ],
)
def test_a_loss_that_a_model_makes_of_what_its_forward_has_kept(kept: str, entries: str, found: bool) -> None:
    conversion = convert(
        setup=KEPT.format(kept=kept, entries=entries),
        build="model = Net(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        loss="loss = model.loss(model(x), y, y.numpy())",
    )
    assert ("ACC425" in codes(conversion)) is found
    assert "reduction=" not in place_of(conversion.new_text, "backward")


def test_weights_that_sum_up_to_the_same_everywhere_are_named_by_what_they_are_divided_by() -> None:
    loss = """
each = F.cross_entropy(model(x), y, reduction="none")
a, b = each * (y == 0), each * (y == 1)
weight = a / torch.sum(a).item() + b / b.sum().detach().item()
loss = torch.sum(weight * each) / torch.sum(weight).item()
"""
    (said,) = [f.message for f in convert(loss=loss).remaining if f.code == "ACC425"]
    assert said.endswith("its weights are divided by `torch.sum(a).item()` and `b.sum().detach().item()`")


@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.cross_entropy(model(x), y)",
        f"{EACH}loss = each.sum() / x.size(0)",
        f"{EACH}loss = each.sum() / len(y)",
        f"{EACH}shares = torch.tensor([1.0, 3.0])\nloss = each.mean() / shares.sum()",
        f"{EACH}shares = torch.tensor([1.0, 3.0])\nloss = each.sum() / (8 * shares.sum())",
        "loss = F.cross_entropy(model(x), y, weight=None)",
        f"{EACH}loss = torch.mean(each[:, None].sum(1) / y[:, None].sum(1))",
        f"{EACH}import numpy as np\nloss = each.sum() / np.sum([1.0, 3.0])",
    ],
)
def test_other_losses(loss: str) -> None:
    assert "ACC425" not in codes(convert(loss=loss))


def test_a_backward_that_is_weighed_already() -> None:
    check_noop("loss", "loss = F.cross_entropy(model(x), y)", "ACC425")


WEIGHED = """
class Weighed(nn.Module):
    def __init__(self, scale=1.0, weight=None):
        super().__init__()
        self.scale, self.rest = scale, weight
        self.weight = weight

    def forward(self, scores, y):
        return F.cross_entropy(scores * self.scale, y, weight=self.weight)

criterion = Weighed({given})
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", False),
        ("2.0", False),
        ("weight=None", False),
        ("2.0, None", False),
        ("weight=torch.tensor([1.0, 2.0])", True),
        ("2.0, torch.tensor([1.0, 2.0])", True),
        ("**{'weight': torch.tensor([1.0, 2.0])}", True),
        (")\ncriterion.weight = torch.tensor([1.0, 2.0]", True),
    ],
)
def test_class_weights_that_nobody_gives(given: str, found: bool) -> None:
    conversion = convert(setup=WEIGHED.format(given=given), loss="loss = criterion(model(x), y)")
    assert ("ACC425" in codes(conversion)) is found


LOCAL = """
class Weighed(nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        {made}
        self.loss = nn.NLLLoss(weight={kept})

    def forward(self, scores, y):
        return self.loss(scores.log_softmax(1), y)

criterion = Weighed({given})
"""


@pytest.mark.parametrize("given", ["", "[1.0, 2.0]"])
@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ("w = torch.tensor(weight) if weight is not None else None", "w"),
        ("w = None\n        if weight: w = torch.tensor(weight)", "w"),
        ("if weight is None: w = None\n        else: w = torch.tensor(weight)", "w"),
        ("if weight is not None: weight = torch.tensor(weight)", "weight"),
        ("weight = torch.tensor(weight) if weight is not None else None", "weight"),
    ],
)
def test_class_weights_that_are_made_of_what_nobody_gives(made: str, kept: str, given: str) -> None:
    setup = LOCAL.format(made=made, kept=kept, given=given)
    assert ("ACC425" in codes(convert(setup=setup, loss="loss = criterion(model(x), y)"))) is bool(given)


@pytest.mark.parametrize(
    "made",
    [
        "weight = torch.ones(2)\n        w = weight if weight is not None else None",
        "w = torch.ones(2)",
        "w = None\n        for w in [torch.ones(2)]: pass",
    ],
)
def test_class_weights_that_are_made_of_nothing_given(made: str) -> None:
    setup = LOCAL.format(made=made, kept="w", given="")
    assert "ACC425" in codes(convert(setup=setup, loss="loss = criterion(model(x), y)"))


@pytest.mark.parametrize("later", ["", "criterion.weight = torch.tensor([1.0, 2.0])"])
def test_class_weights_that_the_script_sets_on_a_loss_of_another_module(tmp_path: Path, later: str) -> None:
    own, _, _ = WEIGHED.partition("criterion")
    (tmp_path / "weighed.py").write_text(f"import torch.nn as nn\nimport torch.nn.functional as F\n{own}")
    setup = f"from weighed import Weighed\ncriterion = Weighed()\n{later}"
    (tmp_path / "train.py").write_text(frame(setup=setup, loss="loss = criterion(model(x), y)"))
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert ("ACC425" in codes(conversion)) is bool(later)


REAL = "loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 2)), batch_size=8)\n"


@pytest.mark.parametrize(
    "loss",
    [
        "diff = y - model(x)\ndiff = diff[y > 0]\nloss = (diff ** 2).mean()",
        "diff = y - model(x)\nif len(y):\n    diff = diff[y > 0]\nloss = diff.abs().mean() + torch.mean(diff ** 2)",
        "loss = ((y - model(x))[y > 0] ** 2).mean()",
        "loss = torch.mean(-torch.abs((y - model(x))[(y > 0) & ~(y > 3)].view(-1)))",
        "d = (y - model(x))[torch.logical_and(y > 0, y < 1)]\nloss = torch.sqrt((d**2).mean())",
        "loss = (y - model(x)).abs().masked_select(y.gt(0).detach()).mean()",
        "mask = torch.isnan(y)\np, t = model(x)[~mask], y[~mask]\nloss = F.mse_loss(p, t)",
        "mask = torch.isnan(y)\nloss = F.mse_loss(model(x)[~mask], y[~mask], reduction='none').mean()",
        "rows = torch.nonzero(y[:, 0] > 0).squeeze(1)\nloss = F.mse_loss(input=model(x)[rows][:, 0], target=y[rows])",
        "rows = torch.where(y[:, 0] > 0)[0]\nloss = (model(x)[rows] - y[rows]).pow(2).sum(1).mean()",
        "each = nn.MSELoss(reduction='none')(model(x), y)\nloss = each[y.bool()].mean()",
    ],
)
def test_means_over_what_a_mask_leaves_however_they_are_written(loss: str) -> None:
    conversion = convert(ready=REAL, loss=loss)
    assert [f.code for f in conversion.remaining].count("ACC425") == 1
    assert "it is averaged over `" in next(f.message for f in conversion.remaining if f.code == "ACC425")


@pytest.mark.parametrize(
    "loss",
    [
        "loss = ((y - model(x)) ** 2).mean()",
        "d = (y - model(x))[:, 0]\nloss = (d ** 2).mean()",
        "keep = torch.arange(2) > 0\nd = (y - model(x))[:, keep]\nloss = (d ** 2).mean()",
        "d = (y - model(x))[torch.arange(8), y.argmax(1)]\nloss = (d ** 2).mean()",
        "d = (y - model(x))[y.argsort(0)[:4, 0]]\nloss = (d ** 2).mean()",
        "d = y - model(x)\nd[y > 0] = 0\nloss = (d ** 2).mean()",
        "d = y - model(x)\nloss = (d * (y > 0)).mean()",
        "d = y - model(x)\nloss = d.abs().mean()\nd = d[y > 0]\nprint(d)",
        "loss = F.mse_loss(model(x)[y > 0], y[y > 0], reduction='sum') / x.size(0)",
        "p, m, loss = model(x), y > 0, 0\nfor b in range(p.size(0)):\n    loss += F.l1_loss(p[b][m[b]], y[b][m[b]])",
    ],
)
def test_means_over_all_of_a_batch_or_of_each_sample(loss: str) -> None:
    assert "ACC425" not in codes(convert(ready=REAL, loss=loss))


MASKED = """import torch.nn as nn
class Masked(nn.Module):
    def forward(self, pred, target):
        valid = (target > 0).detach()
        diff = target - pred
        diff = diff[valid]
        self.loss = (diff ** 2).mean()
        return self.loss
"""


def test_a_masked_mean_of_another_module(tmp_path: Path) -> None:
    (tmp_path / "criteria.py").write_text(MASKED)
    setup = "import criteria\ncriterion = criteria.Masked()"
    (tmp_path / "train.py").write_text(frame(setup=setup, ready=REAL, loss="loss = criterion(model(x), y)"))
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC425"]
    assert "it is averaged over `diff[valid]` (criteria.py:7)" in said


def test_what_several_terms_are_averaged_over_is_said_once() -> None:
    loss = "a, b = y > 0, y < 0\nd = y - model(x)\nloss = d[a].mean() - d[b].mean() + d[y != 1].mean()"
    (said,) = [f.message for f in convert(ready=REAL, loss=loss).remaining if f.code == "ACC425"]
    assert "it is averaged over `d[a]` and `d[b]` and `d[y != 1]`; multiply" in said


def test_of_several_criteria_the_first_in_the_file_is_named(tmp_path: Path) -> None:
    other = MASKED.replace("Masked", "Other").replace("import torch.nn as nn\n", "")
    (tmp_path / "criteria.py").write_text(MASKED + other)
    setup = "import criteria\ncriterion = criteria.Other() if os.environ else criteria.Masked()"
    (tmp_path / "train.py").write_text(frame(setup=setup, ready=REAL, loss="loss = criterion(model(x), y)"))
    for _ in range(3):
        conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
        (said,) = [f.message for f in conversion.remaining if f.code == "ACC425"]
        assert "it is averaged over `diff[valid]` (criteria.py:7)" in said


FOCAL = """
class Focal(nn.Module):
    def __init__(self, power=2):
        super().__init__()
        self.power, self.ce = power, nn.CrossEntropyLoss({reduction})
    def forward(self, scores, y):
        one = self.ce(scores, y)
        certain = torch.exp(-one)
        both = (1 - certain) ** self.power * one
        return both.mean()
criterion = Focal()
"""


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        ("", "loss = torch.sqrt(F.mse_loss(model(x)[:, 0], y.float()))"),
        ("", "fit = F.cross_entropy(model(x), y)\nloss = fit.exp() + 0.1 * fit"),
        ("", "loss = ((model(x)[:, 0] - y) ** 2).mean() ** 0.5"),
        ("", "scores = model(x)\nloss = torch.log(torch.mean(torch.exp(scores))) - scores.mean()"),
        (FOCAL.format(reduction=""), "loss = criterion(model(x), y)"),
        ("margin = 1.0", "fit = F.cross_entropy(model(x), y)\nloss = torch.clamp(margin - fit, min=0)"),
        (
            "criterion = nn.MSELoss().cuda() if torch.cuda.is_available() else nn.MSELoss()\nmargin = 1.0",
            "loss = torch.relu(margin - criterion(model(x)[:, 0], y.float()))",
        ),
    ],
)
def test_a_curve_over_a_mean_is_named(setup, loss):
    said = [f.message for f in convert(setup=setup, loss=loss).remaining if f.code == "ACC425"]
    assert len(said) == 1, said
    assert "bends a mean over the batch" in said[0]


ENTROPY = """
def entropy(p):
    return -(p * torch.log(p + 1e-8)).sum()
"""


@pytest.mark.parametrize(
    ("loss", "how"),
    [
        ("loss = -torch.log(model(x).softmax(1).mean(0)).sum()", "bends a mean"),
        (
            "loss = F.cross_entropy(model(x), y)\nloss += torch.mean(model(x), dim=0).log().sum()",
            "bends a mean",
        ),
        ("loss = F.cross_entropy(model(x), y) - entropy(model(x).softmax(1).mean(0))", "bends a mean"),
        ("loss = F.mse_loss(model(x).mean(0), torch.zeros(2))", "bends a mean"),
        ("loss = torch.abs(model(x).mean(0) - torch.mean(model(x + 1), 0)).sum()", "bends a mean"),
        ("load = model(x).softmax(1).mean(0)\nloss = (load * model(x).mean(0)).sum()", "multiplies means"),
        ("loss = F.cross_entropy(model(x), y) / model(x).mean()", "divides by a mean"),
        ("loss = F.relu(1 - torch.sqrt(model(x).var(dim=0) + 1e-4)).mean()", "is a spread"),
        ("fit = model(x)\nloss = (fit - y[:, None]).abs().mean() / fit.std()", "is a spread"),
    ],
)
def test_what_is_made_of_means_over_the_samples_is_named(loss, how):
    said = [f.message for f in convert(setup=ENTROPY, loss=loss).remaining if f.code == "ACC425"]
    assert len(said) == 1, said
    assert f"{how} over the batch" in said[0]


@pytest.mark.parametrize(
    ("setup", "loss"),
    [
        ("", "loss = F.cross_entropy(model(x), y)\nprint(torch.exp(loss).item())"),
        ("", "loss = torch.sqrt(((model(x)[:, 0] - y) ** 2) + 1e-6).mean()"),
        ("", "loss = F.cross_entropy(model(x), y) + model.weight.mean() ** 2"),
        ("", "loss = F.cross_entropy(model(x), y).abs()"),
        ("", "loss = torch.stack([model(x), model(x)]).softmax(2).mean(0).log().mean()"),
        ("", "loss = model(x).reshape(2, -1, 2).mean(0).log().mean()"),
        ("", "loss = torch.log(torch.exp(model(x)).mean(0)).mean()"),
        ("", "loss = F.kl_div(model(x).log_softmax(1).mean(0), torch.ones(2))"),
        (ENTROPY, "loss = entropy(model(x).softmax(1)).mean()"),
        ("", "loss = F.cross_entropy(model(x), y) + model(x).std(1).mean()"),
        ("", "loss = 0.1 * model(x).mean() + 3 * model(x).mean(0).sum()"),
        ("", "loss = torch.log(model(x).softmax(1).mean(1)).mean()"),
        ("", "loss = 0.5 * F.cross_entropy(model(x), y) / 3 + 1"),
        (FOCAL.format(reduction='reduction="none"'), "loss = criterion(model(x), y)"),
    ],
)
def test_a_curve_for_each_sample_is_silent(setup, loss):
    assert "ACC425" not in codes(convert(setup=setup, loss=loss))


OVERLAP = """
class Overlap(nn.Module):
    def forward(self, scores, y):
        p = torch.sigmoid(scores)[:, 0]
        return self.of(p, y)
    def of(self, p, y):
        {body}
overlap = Overlap()
"""
SUMS = "inter = (p * y).sum(); return 1 - (2 * inter + 1) / (p.sum() + y.sum() + 1)"


@pytest.mark.parametrize(
    ("body", "loss"),
    [
        (SUMS, "loss = overlap(model(x), y)"),
        (SUMS, "loss = F.cross_entropy(model(x), y)\nloss += 0.5 * overlap(model(x), y)"),
        ("return -torch.log(torch.sum(p * y) / torch.sum(p + y))", "loss = overlap(model(x), y)"),
        ("return -(torch.sum(p * y, dim=0) / (p + y).sum(0)).log()", "loss = overlap(model(x), y)"),
        (
            "return 1 - 2 * (p * y).sum((0,)) / (p * p + y * y).sum((0,)).clamp(min=1e-6)",
            "loss = overlap(model(x), y)",
        ),
    ],
)
def test_a_ratio_of_sums_over_the_batch_is_named(body: str, loss: str) -> None:
    conversion = convert(setup=OVERLAP.format(body=body), loss=loss)
    (said,) = [f.message for f in conversion.remaining if f.code == "ACC425"]
    assert "is a ratio of sums over the batch in line 15, and" in said
    assert "weight=" not in said


EVERY = """def one(p, y):
    return 1 - (p * y).sum() / (p + y).sum()
def every(p, y):
    total = 0
    for i in range(p.size(0)):
        total += one(p[i], y[i])
    return total / p.size(0)
"""


@pytest.mark.parametrize(
    ("body", "loss", "ready"),
    [
        (
            "return (1 - (p * y).sum(1) / (p.sum(1) + y.sum(1))).mean()",
            "loss = overlap(model(x), y[:, None])",
            "",
        ),
        (SUMS, "loss = every(model(x), y)", EVERY),
        (SUMS, "loss = overlap(model(x), y)", "loader = DataLoader(data, shuffle=True)"),
        (
            "return 1 - ((p > 0) * y).sum() / ((p > 0).sum() + y.sum())",
            "loss = model(x).mean() * overlap(x, y)",
            "",
        ),
    ],
)
def test_a_ratio_for_each_sample_is_silent(body: str, loss: str, ready: str) -> None:
    assert "ACC425" not in codes(convert(setup=OVERLAP.format(body=body), ready=ready, loss=loss))


CHOSEN = """
class {name}(nn.Module):
    def forward(self, scores, y{more}):
        p = torch.sigmoid(scores)[:, 0]
        return self.of(p, y{more})
    def of(self, p, y{more}):
        {body}
"""
BOTH = """
class Both{}(nn.Module):
    def __init__(self):
        super().__init__()
        self.overlap = {}()
    def forward(self, scores, y):
        return F.cross_entropy(scores, y) + self.overlap(scores, y)
"""


def _said(name: str, made: str, loss: str, body: str = SUMS, more: str = "") -> list[str]:
    setup = CHOSEN.format(name=name, body=body, more=more)
    conversion = convert(setup=f"{setup}kind = os.environ['KIND']\n{made}", loss=loss)
    return [f.message for f in conversion.remaining if f.code == "ACC425"]


@pytest.mark.parametrize("name", ["Overlap", "OverlapLoss"])
@pytest.mark.parametrize(
    "made",
    [
        "overlap = {}()",
        BOTH + "overlap = Both{}()",
        "overlap = {}() if kind == 'overlap' else nn.CrossEntropyLoss()",
        "if kind == 'overlap':\n    overlap = {}()\nelse:\n    overlap = nn.CrossEntropyLoss()",
    ],
)
def test_a_ratio_in_a_class_that_is_named_a_loss_or_one_of_several(name: str, made: str) -> None:
    (said,) = _said(name, made.replace("{}", name), "loss = overlap(model(x), y)")
    assert "is a ratio of sums over the batch in line 15, and" in said


@pytest.mark.parametrize("name", ["Overlap", "OverlapLoss"])
def test_what_such_a_class_is_given_may_be_one_sample_or_no_output(name: str) -> None:
    made = f"overlap = {name}()"
    each = "loss = 0\nfor k in range(x.size(0)):\n    loss = loss + overlap(model(x[k]), y[k])"
    assert not _said(name, made, f"{each}\nloss = loss / x.size(0)")
    masked = "return (F.l1_loss(p, y.float(), reduction='none') * mask).sum() / mask.sum()"
    (said,) = _said(name, made, "loss = overlap(model(x), y, (y > 0).float())", masked, ", mask")
    assert "it is divided by `mask.sum()`" in said


RARE = """
class Rare(nn.Module):
    def forward(self, scores, y, marks):
        shares = torch.mean(marks, axis=0)
        shares = {weights}
        weight = torch.sum(marks.mul(shares), axis=1)
        each = F.cross_entropy(scores, y, reduction="none")
        return torch.mean(weight * each), each.mean()
"""


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ("torch.Tensor([1 / share if share > 0 else 8 for share in shares])", True),
        ("torch.reciprocal(shares + 1)", True),
        ("torch.Tensor([2 * share for share in shares])", False),
    ],
)
def test_weights_by_the_inverse_of_a_mean_of_the_batch_are_named(weights: str, named: bool) -> None:
    setup = f"{RARE.format(weights=weights)}\nrare = Rare()"
    conversion = convert(setup=setup, loss="loss, plain = None, None\nloss, plain = rare(model(x), y, x)")
    said = [f.message for f in conversion.remaining if f.code == "ACC425"]
    assert len(said) == named
    assert all("a mean over the batch" in one for one in said)


OVERLAPS = """
import torch
import torch.nn as nn

class Overlaps(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def one(self, p, y):
        both = torch.sum(p * y)
        loss = (2 * both + 1) / (torch.sum(p * p) + torch.sum(y * y) + 1)
        loss = 1 - loss
        return loss

    def forward(self, p, y, weight=None):
        if weight is None:
            weight = [1] * self.classes
        loss = 0.0
        for n in range(self.classes):
            one = self.one(p[:, n], y[:, n])
            loss += one * weight[n]
        return loss / self.classes
"""
TRAINER = """
import torch.nn.functional as F
from overlaps import Overlaps

def train(model, optimizer, loader):
    overlaps = Overlaps(2)
    for x, y in loader:
        scores = model(x)
        plain = F.cross_entropy(scores, y)
        apart = overlaps(scores, F.one_hot(y, 2))
        loss = 0.4 * plain + 0.6 * apart
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ENTRY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer import train

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
train(model, optimizer, DataLoader(data, batch_size=8))
"""


def test_ratios_of_the_classes_are_named_in_a_trainer_beside_the_script(tmp_path: Path) -> None:
    for name, text in {"overlaps": OVERLAPS, "trainer": TRAINER, "train": ENTRY}.items():
        (tmp_path / f"{name}.py").write_text(text)
    conversions = convert_project(Source.read(tmp_path / "train.py"))
    (said,) = [f.message for c in conversions for f in c.remaining if f.code == "ACC425"]
    assert "is a ratio of sums over the batch (overlaps.py:12), and" in said


@pytest.mark.parametrize(
    ("divisor", "found"), [("mask[i].sum() + 1e-6", False), ("own", False), ("mask.sum()", True)]
)
def test_a_count_of_each_sample_by_itself_is_silent(divisor: str, found: bool) -> None:
    setup = (
        "def masked(scores, y):\n"
        "    mask, total = (y > 0).float(), 0\n"
        "    each = F.cross_entropy(scores, y, reduction='none')\n"
        "    for i in range(scores.shape[0]):\n"
        "        own = torch.sum(mask[i])\n"
        f"        total = total + torch.sum(each[i] * mask[i]) / ({divisor})\n"
        "    return total / scores.shape[0]\n"
    )
    conversion = convert(setup=setup, loss="loss = masked(model(x), y)")
    assert ("ACC425" in codes(conversion)) is found


def test_a_sum_over_the_weights_is_no_count_of_the_batch() -> None:
    loss = f"{EACH}loss = each.mean() / sum(p.numel() for p in model.parameters())"
    assert "ACC425" not in codes(convert(loss=loss))
