"""What the engine says of losses and figures by how the rows of a batch go into them: the wrong ones and their right
neighbours."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, Validation, validate

KNOWLEDGE = Knowledge()
HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(nn.Linear(2, 3))
loader = accelerator.prepare(DataLoader(torch.load("d"), batch_size=6))
test = accelerator.prepare(DataLoader(torch.load("e"), batch_size=6))
whole = DataLoader(torch.load("f"), batch_size=6)
"""


def found(text: str) -> Validation:
    return validate(HEAD + text, None, KNOWLEDGE)


def named(text: str) -> list[str]:
    return [one.message for one in found(text).of(Status.NAMED)]


def in_training(lines: str, before: str = "") -> str:
    """A training loop with these lines between its batch and its backward."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"{before}for x, y in loader:\n{body}    accelerator.backward(loss)\n"


def in_evaluation(lines: str, figure: str, before: str = "") -> str:
    """An evaluation loop of batches `o`, `l` that are gathered, and a figure printed after it."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    gathered = "    o, l = accelerator.gather_for_metrics((model(x), y))\n"
    return f"{before}for x, y in test:\n{gathered}{body}accelerator.print({figure})\n"


FOREIGN = "import somelib\nnet = accelerator.prepare(somelib.Net())\n"

CAUSES = {
    "left out": (
        in_training(
            "loss = criterion(net(x), y)", f"{FOREIGN}criterion = nn.CrossEntropyLoss(ignore_index=0)\n"
        ),
        "`criterion(net(x), y)` is a mean by `ignore_index=`",
    ),
    "weighed": (
        in_training("loss = 0.5 * F.cross_entropy(net(x), y, weight=torch.ones(3)) + net(x).mean()", FOREIGN),
        "is a mean by `weight=`",
    ),
    "a ratio": (
        in_training("p = model(x).sigmoid()\nloss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())"),
        "`2 * (p * y).sum() / (p.sum() + y.sum())` is a ratio",
    ),
    "chosen": (
        in_training("each = F.cross_entropy(model(x), y, reduction='none')\nloss = each[y > 0].mean()"),
        "`each[y > 0]` chooses among the rows",
    ),
    "chosen by a call": (
        in_training("each = (model(x) - y).abs()\nloss = each.masked_select(y > 0).mean()"),
        "`each.masked_select(y > 0)` mixes rows",
    ),
    "a mean over how many are counted": (
        in_training("e = (model(x) - y).abs()\nloss = (e * (y > 0)).sum() / torch.count_nonzero(y > 0)"),
        "is a ratio of figures of each process's batch",
    ),
    "a mask that is divided in place by its mean": (
        in_training("m = (y != 0).float()\nm.div_(m.mean())\nloss = ((model(x) - y).abs() * m).mean()"),
        "`m.div_(m.mean())` is a ratio of figures of each process's batch",
    ),
    "one of two figures of the batch for each row": (
        in_training("p = (y > 0).float().mean()\nloss = (torch.where(y > 0, 1 - p, p) * model(x)).mean()"),
        "`torch.where(y > 0, 1 - p, p)` goes by a mean or a sum over all rows",
    ),
    "those above their mean": (
        in_training("e = (model(x) - y).abs()\nloss = (e * (e > e.mean())).mean()"),
        "`e > e.mean()` goes by a mean or a sum over all rows",
    ),
    "a loss by its name, which a library has or the script": (
        in_training(
            "loss = criterion(model(x), y)",
            "import sys\n"
            "class Masked(nn.Module):\n"
            "    def forward(self, o, y):\n"
            "        m = (y != 0).float()\n"
            "        return ((o - y).abs() * (m / m.mean())).mean()\n"
            "def named(name):\n"
            "    try:\n"
            "        return getattr(nn, name)()\n"
            "    except AttributeError:\n"
            "        return getattr(sys.modules[__name__], name)()\n"
            "criterion = named('Masked')\n",
        ),
        "`m / m.mean()` is a ratio of figures of each process's batch",
    ),
    "chosen among pairs of rows": (
        in_training(
            "o = model(x)\n"
            "pairs = torch.mm(o, o.t().contiguous())\n"
            "others = ~torch.eye(len(x)).bool()\n"
            "loss = -(o * y).sum(1).sub(pairs.masked_select(others).view(len(x), -1).sum(1)).mean()"
        ),
        "the loss is neither the mean nor the sum",
    ),
    "a view that is no transposed one": (
        in_training("z = x.view(x.shape[1], -1, 1)\nloss = F.mse_loss(net(z), y)", FOREIGN),
        "`x.view(x.shape[1], -1, 1)` puts the rows along an axis of another length",
    ),
    "a norm of all rows": (
        in_training("loss = F.cross_entropy(net(x), y) + 0.1 * torch.norm(x - model(x)) / len(x)", FOREIGN),
        "`torch.norm(x - model(x))` is of all rows together, each process that of its batch",
    ),
    "a deviation over the batch": (
        in_training("loss = F.relu(1 - model(x).std(0)).mean()"),
        "`model(x).std(0)` is of all rows together",
    ),
    "a sum that goes from row to row": (
        in_training("loss = 0\nfor o, l in zip(model(x), y): loss = loss + F.cross_entropy(o, l)"),
        "the loss is a sum of its rows, and the gradients are averaged",
    ),
    "a ratio of what a model has made as large as its input": (
        in_training(
            "p = net(x)\nloss = F.binary_cross_entropy(p, y) + 1 - (p * y).sum() / (p.sum() + y.sum())",
            "class Net(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.down, self.up = nn.Conv2d(1, 2, 3, 2), nn.ConvTranspose2d(2, 1, 3, 2)\n"
            "    def forward(self, x):\n"
            "        made = self.up(self.down(x))\n"
            "        if made.size()[2:] != x.size()[2:]:\n"
            "            made = F.interpolate(made, x.size()[2:])\n"
            "        return made.sigmoid()\n"
            "net = accelerator.prepare(Net())\n",
        ),
        "`(p * y).sum() / (p.sum() + y.sum())` is a ratio",
    ),
    "a sum with a target that is made as many as the batch": (
        in_training(
            "o, t = model(x), torch.eye(3)\n"
            "if o.size(0) != t.size(0): t = t.expand_as(o)\n"
            "loss = F.mse_loss(o, t, reduction='sum') / 9"
        ),
        "the loss is a sum of its rows, and the gradients are averaged",
    ),
    "a sum and a mean": (
        in_training(
            "o = model(x)\nn, c = o.size()\nloss = F.mse_loss(o, y, reduction='sum') / 9 + o.abs().sum() / (n * c)"
        ),
        "is a sum of a mean and a sum of each process's batch",
    ),
    "a product of rows": (
        in_training(
            "z = F.normalize(model(x))\nloss = F.cross_entropy(z @ z.t() / 0.1, torch.arange(len(z)))"
        ),
        "`z @ z.t()` is a product of rows of each process's batch",
    ),
    "what an unknown object has from all batches": (
        "import somelib\nmetric = somelib.Metric()\n"
        "for x, y in test: metric(model(x), y)\n"
        "accelerator.print(metric.compute())\n",
        "`metric.compute()`, of what each process put in",
    ),
    "a ratio of sums over the rows of all processes": (
        in_evaluation(
            "total += F.mse_loss(o, l).item() + (1 - (o * l).sum() / (o.sum() + l.sum())).item()",
            "total / len(test)",
            "total = 0.0\n",
        ),
        "`(o * l).sum() / (o.sum() + l.sum())` is a ratio of figures of the batches of all processes",
    ),
    "a ratio on one of two ways": (
        in_training(
            "loss = count(model(x), y)",
            "def count(o, y):\n"
            "    n = y.ne(-1).sum()\n"
            "    if n == 0:\n"
            "        return o.sum() * 0\n"
            "    return F.cross_entropy(o, y, reduction='sum') / n\n",
        ),
        "is a ratio of figures of each process's batch",
    ),
}


@pytest.mark.parametrize("kind", CAUSES)
def test_the_cause_of_a_weighted_mean_is_said(kind: str) -> None:
    text, cause = CAUSES[kind]
    messages = named(text)
    assert [cause in message for message in messages] == [True], messages


QUIET = {
    "a model of a library that is not known": in_training("loss = F.cross_entropy(net(x), y)", FOREIGN),
    "a loss of a library that is not known": in_training(
        "loss = criterion(net(x), y)", f"{FOREIGN}criterion = somelib.Loss()\n"
    ),
    "batchmean": in_training("loss = F.kl_div(model(x).log_softmax(1), x.softmax(1), reduction='batchmean')"),
    "a factor that is drawn for the batch": (
        "import numpy as np\n" + in_training("loss = np.random.beta(1.0, 1.0) * F.cross_entropy(model(x), y)")
    ),
    "norms of rows and of weights": in_training(
        "loss = model(x).norm(dim=1).mean() + sum(w.norm() for w in model.parameters()) + x.std(1).mean()"
    ),
    "a batch that is put together row by row": in_training(
        "z, i = x[0].unsqueeze(0), 1\n"
        "while i < len(x):\n"
        "    z = torch.cat([z, x[i].unsqueeze(0)], dim=0)\n"
        "    i += 1\n"
        "loss = F.mse_loss(model(z), y)"
    ),
    "two means side by side": in_training(
        "a, b = F.mse_loss(model(x), y), F.l1_loss(model(x), y)\nloss = torch.stack([a, b]).sum() + sum([a, 2 * b])"
    ),
    "means of steps in a list": in_training(
        "each = []\nfor t in range(3): each.append(F.mse_loss(model(x[:, t]), y))\nloss = torch.stack(each).mean()"
    ),
    "a mean that goes from row to row": in_training(
        "loss, o = 0, model(x)\n"
        "for i in range(len(x)): loss = loss + F.cross_entropy(o[i], y[i])\n"
        "loss = loss / len(x)"
    ),
    "a state that is begun anew by a flag": in_training(
        "loss = F.cross_entropy(net(x, size), y)",
        "import sys\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.rnn = nn.LSTM(2, 3)\n"
        "    def forward(self, x, size=None):\n"
        "        if size:\n"
        "            self.state = (torch.zeros(1, size, 3), torch.zeros(1, size, 3))\n"
        "        out, self.state = self.rnn(x.transpose(0, 1), self.state)\n"
        "        return out[-1]\n"
        "size, net = int(sys.argv[1]), accelerator.prepare(Net())\n",
    ),
    "steps that are put among the rows and back": in_training(
        "b, t = x.shape[:2]\nz = model(x.view(b * t, -1)).view(b, t, -1)\nloss = F.mse_loss(z, y)"
    ),
    "axes exchanged": in_training(
        "b, t, d = x.size()\nz = model(x.transpose(0, 1).reshape(t, b, d))\nloss = F.mse_loss(z, y)"
    ),
    "as many rows as a state has": in_training(
        "out, (h, c) = rnn(x)\nloss = F.cross_entropy(out[:, -1].view(h.size(1), -1), y)",
        "rnn = accelerator.prepare(nn.LSTM(2, 3, batch_first=True))\n",
    ),
    "a mean with a target that is made as many as the batch": in_training(
        "o, t = model(x), torch.eye(3)\n"
        "if o.size(0) != t.size(0): t = t.expand_as(o)\n"
        "loss = F.mse_loss(o, t) + o.abs().sum() / o.numel()"
    ),
    "two means of which one is for batches of some size": in_training(
        "o = model(x)\nloss = F.mse_loss(o, y)\nif len(o) > 3: loss = loss + o.abs().mean()"
    ),
    "masks that are not divided by what the batch has": in_training(
        "m, w = (y != 0).float(), torch.ones(3)\n"
        "m.mul_(w / w.mean())\n"
        "e = (model(x) - y).abs() * torch.where(y > 0, w[0], w[1])\n"
        "loss = (e * m).mean() + ((e * m).sum(1) / m.sum(1).clamp(min=1)).mean() + e.masked_select(w > 0).mean()"
    ),
    "a mean of each row": in_training("loss = (model(x) / x.sum(1, keepdim=True)).mean()"),
    "the same by such a model on all of the data": (
        f"{FOREIGN}net.train()\n"
        + in_training("loss = F.cross_entropy(net(x), y)")
        + "table = torch.zeros(3, 3)\nfor x, y in whole:\n    table[y, net(x).argmax(1)] += 1\n"
        + "accelerator.print(table.diag() / table.sum(1))\n"
    ),
    "a constant that follows the batch's device once": (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.scale, self.moved, self.layer = torch.arange(1, 4), False, nn.Linear(3, 3)\n"
        "    def forward(self, x):\n"
        "        if not self.moved:\n"
        "            self.scale, self.moved = self.scale.to(x.device), True\n"
        "        return self.layer(x / self.scale)\n"
        "net = accelerator.prepare(Net())\n" + in_training("loss = F.cross_entropy(net(x), y)")
    ),
    "a sum over the rows by their number": in_evaluation(
        "for i in range(l.size(0)): total += (o[i] - l[i]).abs().mean().item()", "total", "total = 0.0\n"
    ),
    "an unknown figure of each row": in_evaluation(
        "for i in range(l.size(0)): total += score(o[i], l[i])",
        "total",
        "from somelib import score\ntotal = 0.0\n",
    ),
    "counts under the key of a row": in_evaluation(
        "for a, b in zip(o, l): parts['low' if b > 0 else 'high']['n'] += 1",
        "parts['low']['n']",
        "parts = {'low': {'n': 0}, 'high': {'n': 0}}\n",
    ),
    "counts in a part that is chosen": in_evaluation(
        "for a, b in zip(o, l):\n    p = parts[['low', 'high'][int(b > 0)]]\n    p['n'] += 1",
        "parts['low']['n']",
        "parts = {'low': {'n': 0}, 'high': {'n': 0}}\n",
    ),
}


@pytest.mark.parametrize("kind", QUIET)
def test_what_goes_row_by_row_is_not_named(kind: str) -> None:
    assert named(QUIET[kind]) == []


def test_counts_of_a_share_under_the_key_of_a_row_are_named() -> None:
    text = (
        "parts = {'low': {'n': 0}, 'high': {'n': 0}}\n"
        "for x, y in test:\n"
        "    for i in range(y.size(0)):\n"
        "        parts['low' if y[i] > 0 else 'high']['n'] += 1\n"
    )
    assert len(named(f"{text}accelerator.print(parts['low']['n'])\n")) == 1
    assert named(f"{text}accelerator.print(accelerator.reduce(parts['low']['n'], 'sum'))\n") == []


def test_a_weighted_mean_of_rounds_is_in_the_note() -> None:
    rounds = "total = 0.0\nfor x, y in loader:\n    total += ((x * y).sum() / y.sum()).item()\n"
    (note,) = found(f"{rounds}accelerator.print(accelerator.reduce(total / len(loader), 'mean'))\n").means
    assert note.line == len(HEAD.splitlines()) + 2


CLASSES = "right, n = [0.0] * 10, [0] * 10\n"
BY_CLASS = {
    "a list": (
        f"{CLASSES}",
        "right[l[i]] += (o[i] == l[i]).sum().item()\n        n[l[i]] += 1",
        "right[0] / n[0]",
    ),
    "a dictionary": ("right = {'a': 0, 'b': 0}\n", "right['a' if l[i] > 0 else 'b'] += 1", "right['a']"),
    "a default dictionary": (
        "from collections import defaultdict\nright = defaultdict(int)\n",
        "right[l[i].item()] += 1",
        "right[0]",
    ),
}


@pytest.mark.parametrize("kind", BY_CLASS)
def test_counts_by_the_class_of_a_row(kind: str) -> None:
    before, line, figure = BY_CLASS[kind]
    head, rest = f"{before}for x, y in test:\n    o, l = ", f"\n    for i in range(len(l)):\n        {line}\n"
    shown = f"accelerator.print({figure})\n"
    assert named(f"{head}accelerator.gather_for_metrics((model(x), y)){rest}{shown}") == []
    assert len(named(f"{head}model(x), y{rest}{shown}")) == 1


def test_rows_that_are_padded_for_a_gather_stay_rows() -> None:
    text = "rows = []\nfor x, y in test: rows.append({})\naccelerator.print(torch.cat(rows).mean())\n"
    padded = "accelerator.pad_across_processes(model(x), dim=1)"
    assert named(text.format(f"accelerator.gather_for_metrics({padded})")) == []
    assert len(named(text.format(padded))) == 1


def test_the_number_of_a_row_by_own_rounds_is_named() -> None:
    text = (
        "bad = []\n"
        "for i, (x, y) in enumerate(test):\n"
        "    o, l = accelerator.gather_for_metrics((model(x).argmax(1), y))\n"
        "    for j in torch.nonzero(o != l).flatten().tolist():\n"
        "        bad.append(({}o[j].item(), l[j].item()))\n"
        "if accelerator.is_main_process:\n"
        "    with open('bad.csv', 'w') as file: csv.writer(file).writerows(bad)\n"
    )
    (message,) = named("import csv\n" + text.format("i * 6 + j, "))
    assert "`i * 6 + j`" in message
    assert named("import csv\n" + text.format("")) == []


def test_rows_of_all_that_are_chosen_by_what_they_are() -> None:
    loop = "kept = []\nfor x, y in test:\n    x, p = {}\n    kept.append(x[p.max(1)[0] > 0.4].cpu())\n"
    shown = "accelerator.print(len(torch.utils.data.TensorDataset(torch.cat(kept))))\n"
    assert named(loop.format("accelerator.gather_for_metrics((x, model(x)))") + shown) == []
    assert len(named(loop.format("x, model(x)") + shown)) == 1


def test_gathered_rows_in_the_shape_of_one_batch_are_named() -> None:
    figure = "total += (o.view({}) - 1).abs().mean().item()"
    (message,) = named(in_evaluation(figure.format("3, 3"), "total", "total = 0.0\n"))
    assert "`o.view(3, 3)` has room for one batch, and gets those of all processes" in message
    for free in ("-1, 3", "o.size(0), 3"):
        assert named(in_evaluation(figure.format(free), "total / len(test)", "total = 0.0\n")) == []


@pytest.mark.parametrize(
    "lines",
    [
        "    lists = [one.cpu().numpy() for one in rows]",
        "    lists = []\n    for one in rows: lists.append(one.cpu().numpy())",
    ],
)
def test_gathered_rows_that_the_main_process_puts_in_another_list(lines: str) -> None:
    loop = "import numpy as np\nrows = []\nfor x, y in test:\n    rows.append({})\n"
    text = f"{loop}if accelerator.is_main_process:\n{{}}\n"
    saved = "    np.save('rows.npy', np.vstack(lists))\n"
    assert found(text.format("accelerator.gather_for_metrics(x)", lines) + saved).of(Status.LOOP) == []
    assert len(named(text.format("x", lines) + saved)) == 1


def test_a_shape_by_numpy_counts_rows_along_their_axis_alone() -> None:
    text = "import numpy as np\nrows = np.vstack([x.numpy() for x, y in test])\naccelerator.print(np.shape(rows)[{}])\n"
    assert named(text.format(1)) == []
    assert len(named(text.format(0))) == 1


@pytest.mark.parametrize("gathered", [True, False])
def test_a_list_of_what_each_process_had_may_have_a_row_twice(gathered: bool) -> None:
    lines = "o, l = accelerator.gather_for_metrics((model(x), y))" if gathered else "o = model(x)"
    kept = "made = gather_object(made)\n" if not gathered else ""
    text = f"made = []\nfor x, y in test:\n    {lines}\n    made.extend(o.argmax(1).tolist())\n{kept}"
    validated = found(f"from accelify.runtime import gather_object\n{text}accelerator.print(sum(made))\n")
    assert not validated.of(Status.NAMED)
    assert ["is twice in `gather_object(made)`" in one.text for one in validated.assumptions] == [True] * (
        not gathered
    )


MAPS = "from einops import rearrange\nmodel = accelerator.prepare(nn.Conv2d(2, 3, 1))\n"
DICE = "b = (p * t).sum({0}); loss = 1 - (2 * b / (p.sum({0}) + t.sum({0}))).mean()"


def overlap(moved: str, axes: str) -> str:
    """A loss by how outputs and targets overlap, both laid out anew, with sums over some of the axes that they have."""
    lines = f"p, t = model(x), y\np = {moved.format('p')}\nt = {moved.format('t')}\n{DICE.format(axes)}"
    return in_training(lines, MAPS)


@pytest.mark.parametrize(
    ("moved", "axes"),
    [
        ("{}.view(3, -1)", "1"),
        ("{}.contiguous().view(1, -1)", "-1"),
        ("{}.transpose(0, 1).flatten(1)", "1"),
        ("{}.permute(1, 0, 2, 3).reshape(3, -1)", "dim=1"),
        ("{}.transpose(0, 1).contiguous().view(x.size(1), -1)", "1"),
        ("{}.permute(1, 2, 0, 3)", "(1, 2)"),
        ("{}.permute(1, 0, 2, 3).sum(3)", "1"),
        ("{}.movedim(0, 2).sum(0)", "1"),
        ("rearrange({}, 'b c h w -> c (b h w)')", "1"),
        ("{}.flatten(0, 2)", "0"),
    ],
)
def test_sums_over_an_axis_that_the_rows_are_put_into_are_of_all_rows(moved: str, axes: str) -> None:
    (message,) = named(overlap(moved, axes))
    assert "is a ratio of figures of each process's batch" in message


@pytest.mark.parametrize(
    ("moved", "axes"),
    [
        ("{}.view(6, -1)", "1"),
        ("{}.view(len(x), -1)", "1"),
        ("{}.flatten(1)", "1"),
        ("{}.transpose(0, 2)", "1"),
        ("{}.transpose(0, 1).sum(2)", "0"),
        ("{}.permute(1, 2, 3, 0)", "0"),
        ("{}.movedim(-1, 0)", "0"),
        ("{}.transpose(0, 1).transpose(1, 0).flatten(1)", "1"),
        ("rearrange({}, 'b c h w -> b (c h w)')", "1"),
        ("rearrange({}, 'b c h w -> c b (h w)')", "2"),
    ],
)
def test_sums_over_another_axis_than_that_of_the_rows_are_within_each(moved: str, axes: str) -> None:
    assert (named(overlap(moved, axes)), found(overlap(moved, axes)).assumptions) == ([], [])


def test_rows_in_sizes_that_are_not_known_are_assumed_to_lead() -> None:
    made = found(
        in_training("loss = (model(x).view(int(sys.argv[1]), -1).sum(1) ** 2).mean()", "import sys\n")
    )
    assert made.of(Status.NAMED) == []
    assert [one.text for one in made.assumptions] == [
        "`model(x).view(int(sys.argv[1]), -1)` has the rows of the batch along its first axis"
    ]


@pytest.mark.parametrize(
    "labels",
    ["torch.tensor([1] * len(x))", "torch.tensor([[1] * x.shape[0]])[0]", "torch.tensor(len(x) * [1])"],
)
def test_labels_of_one_kind(labels: str) -> None:
    """A list of a constant for each row has the rows of the batch, whatever it counts."""
    body = f"for x in loader:\n    accelerator.backward(F.cross_entropy(model(x), {labels}))\n"
    assert found(body).of(Status.NAMED) == []


@pytest.mark.parametrize(("bounds", "mixes"), [("k - 1, k + 2", False), ("b + 1, len(x)", True)])
def test_a_loop_over_what_a_row_has(bounds: str, mixes: bool) -> None:
    """It goes over numbers that the row names, or over the other rows."""
    body = (
        "for x, y in loader:\n    t = torch.zeros(len(x), 3)\n    for b in range(len(x)):\n"
        f"        k = int(y[b])\n        for j in range({bounds}):\n            t[b, j] = 1.0 + abs(j - k)\n"
        "    accelerator.backward(((model(x) - t) ** 2).sum() / x.shape[0])\n"
    )
    losses = [one for one in found(body).obligations if one.demand == "loss"]
    assert [one.status is Status.NAMED for one in losses] == [mixes]
