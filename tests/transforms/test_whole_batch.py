"""Losses that compare the samples of a batch with each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import codes, convert

CRITERION = """\
from torch import nn

class {name}(nn.Module):
{init}    def forward(self, a, b):
        return ({term}).mean()
"""
INIT = "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(2, 2)\n\n"
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from losses import {name}

model = torch.nn.Linear(4, 2)
criterion = {name}()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
PAIRS = [
    "a @ a.t()",
    "torch.matmul(a, b.T)",
    "a.mm(b.transpose(0, 1))",
    "torch.cdist(a, a)",
    "a.unsqueeze(0) - b.unsqueeze(1)",
    "a[None, :] - a[:, None]",
    "a.view(len(a), 1, 2) - b.view(1, len(a), 2)",
    "a ** 2 / torch.sum(a, 0)",
    "a / a.sum(dim=0, keepdim=True)",
]


@pytest.mark.parametrize(
    "term",
    [
        "torch.matmul(output, output.t())",
        "output - other.mean(0, keepdim=True)",
        "other - torch.mean(output, dim=0)",
        "torch.log(torch.sum(torch.exp(output)) + torch.sum(torch.exp(other)))",
        "torch.cdist(output, output)",
        "output ** 2 / output.sum(0)",
        "output @ output.T",
        "F.pdist(output)",
    ],
)
def test_in_the_loop(term: str) -> None:
    loss = f"output, other = model(x), model(-x)\nloss = F.cross_entropy(output, y) + ({term}).mean()"
    assert "ACC408" in {f.code for f in convert(loss=loss).remaining}


@pytest.mark.parametrize(
    ("name", "compared"),
    [("anchor", True), ("anchor_feature", True), ("anchors", False), ("anchor_boxes", False)],
)
def test_the_anchor_of_a_pair_is_a_sample_and_that_of_a_detector_none(name: str, compared: bool) -> None:
    loss = f"output, {name} = model(x), model(-x)\nloss = (output @ {name}.t()).mean()"
    assert ("ACC408" in codes(convert(loss=loss))) == compared


@pytest.mark.parametrize(
    "term",
    [
        "output @ weight.t()",
        "torch.matmul(output, other)",
        "torch.matmul(output.unsqueeze(1), output.unsqueeze(2))",
        "output - output.unsqueeze(0)",
        "torch.cdist(output, centers)",
        "output.mean() - model(-x).mean()",
        "torch.log(output.sum(1))",
        "output - output.mean(1, keepdim=True)",
    ],
)
def test_within_one_sample_or_with_what_is_none(term: str) -> None:
    loss = f"output = model(x)\nloss = F.cross_entropy(output, y) + ({term}).mean()"
    before = "weight = torch.randn(2, 2)\nother, centers = weight.t(), weight"
    assert "ACC408" not in codes(convert(loss=loss, ready=before))


@pytest.mark.parametrize("term", PAIRS)
def test_in_a_criterion_of_another_module(tmp_path: Path, term: str) -> None:
    for name, init, found in (("Criterion", "", True), ("Block", "", True), ("Block", INIT, False)):
        folder = tmp_path / f"{name}{found}"
        folder.mkdir()
        (folder / "losses.py").write_text(
            "import torch\n" + CRITERION.format(name=name, init=init, term=term)
        )
        script = folder / "train.py"
        script.write_text(TRAIN.format(name=name))
        (conversion,) = convert_project(Source.read(script))
        assert ("ACC408" in {f.code for f in conversion.remaining}) == found
        if found:
            (finding,) = [f for f in conversion.remaining if f.code == "ACC408"]
            assert "(losses.py, line 6)" in finding.message


def test_of_weights_and_of_a_pass_over_other_data(tmp_path: Path) -> None:
    helpers = """
import torch

def orthogonal(net, loss):
    for m in net.parameters():
        w = m.mm(m.t())
        loss = loss + w.pow(2).sum()
    return loss

def recall(net, loader):
    found = torch.cat([net(x) for x, _ in loader])
    return (found @ found.t()).mean()
"""
    (tmp_path / "helpers.py").write_text(helpers)
    script = TRAIN.format(name="helpers").replace("from losses import helpers", "import helpers")
    script = script.replace("criterion = helpers()", "criterion = torch.nn.CrossEntropyLoss()")
    script = script.replace(
        "    loss.backward", "    loss = helpers.orthogonal(model, loss)\n    loss.backward"
    )
    script += "    print(helpers.recall(model, DataLoader(other, batch_size=8)))\n"
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted"
    assert "ACC408" not in codes(conversion)


WINDOW = """\
import math
import torch

def gaussian(size, sigma):
    found = torch.Tensor([math.exp(-((x - size // 2) ** 2) / float(2 * sigma**2)) for x in range(size)])
    return found / found.sum()

def window(size, channel):
    line = {line}
    return line.mm(line.t()).expand(channel, 1, size, size)

def ssim(one, two, size=11):
    (_, channel, _, _) = one.size()
    made = window(size, channel).type_as(one)
    return (torch.conv2d(one, made, groups=channel) - torch.conv2d(two, made, groups=channel)).pow(2).mean()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gaussian(size, 1.5).unsqueeze(1)", False),
        ("torch.ones(size, 1) / size", False),
        ("torch.randn(size, channel)", True),
        ("channel", True),
    ],
)
def test_a_window_holds_no_samples(tmp_path: Path, line: str, expected: bool) -> None:
    (tmp_path / "ssim.py").write_text(WINDOW.format(line=line))
    script = TRAIN.format(name="ssim").replace("from losses", "from ssim").replace("ssim()", "ssim")
    script = script.replace("criterion(model(x), y)", "ssim(model(x), y)")
    if line == "channel":
        script = script.replace("ssim(model(x), y)", "window(11, model(x))").replace(
            "import ssim", "import window"
        )
        script = script.replace("criterion = ssim", "criterion = window")
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted"
    assert ("ACC408" in codes(conversion)) == expected


def test_what_every_process_goes_through_whole() -> None:
    imports = """from torch.utils.data import Dataset

class Images(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return torch.rand(3, 16 + i, 4)
"""
    epoch = (
        "total = 0\nfor a in {}:\n    values = model(a)\n    total += (values @ values.t()).mean().item()\n"
        "print(total / 10)"
    )
    whole = "whole = DataLoader(Images(), batch_size=1)"
    conversion = convert(imports=imports, ready=whole, epoch=epoch.format("whole"))
    assert "ACC303" in codes(conversion)
    assert "ACC408" not in codes(conversion)
    assert "ACC408" in codes(convert(imports=imports, ready=whole, epoch=epoch.format("loader")))


WRAPPED = """\
import losses
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def compared(a, b):
    return losses.pairs(a, b)


def distances(model, a):
    a = model(a)
    return torch.cdist(a, a)


def test(model, loader):
    model.eval()
    found = []
    for x, _ in loader:
        found.append(distances(model, x))
    return found


data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader, other = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    p = model(x)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print({shown})
"""


def lines_of(folder: Path, text: str) -> list[str]:
    """The lines at which ACC408 is said."""
    (folder / "losses.py").write_text("def pairs(a, b):\n    return (a @ b.t()).mean()\n")
    (folder / "train.py").write_text(text)
    found = [f for f in convert_project(Source.read(folder / "train.py"))[0].remaining if f.code == "ACC408"]
    return [text.splitlines()[f.line - 1].strip() for f in found]


def test_a_function_of_the_script_calls_another_modules(tmp_path: Path) -> None:
    text = WRAPPED.format(loss="compared(p, p)", shown="0")
    assert lines_of(tmp_path, text) == ["return losses.pairs(a, b)"]


def test_what_serves_the_evaluation_alone_is_no_loss(tmp_path: Path) -> None:
    text = WRAPPED.format(loss="p.mean()", shown="test(model, other)")
    assert lines_of(tmp_path, text) == []
    both = text.replace("loss = p.mean()", "loss = distances(model, x).mean()")
    assert lines_of(tmp_path, both) == ["return torch.cdist(a, a)"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("a = p.unsqueeze(0).expand(8, 8, 3)\n    b = p.unsqueeze(1).expand(8, 8, 3)\n    p = a - b", True),
        ("a, n = p.unsqueeze(0), 8\n    b = p.unsqueeze(1)\n    p = a - b", False),  # not followed
        ("p = p.unsqueeze(0).expand(8, 8, 3) - p.unsqueeze(1)", True),
        ("a = p.unsqueeze(2)\n    b = p.unsqueeze(1)\n    p = a - b", False),
        ("a = p.sum(1, keepdim=True).expand(8, 8)\n    a.addmm_(1, -2, p, p.t())\n    p = a", True),
        ("p = torch.addmm(y, p, p.t(), beta=1)", True),
        ("p = torch.addmm(y, p, model.weight.t())", False),
        ("p = torch.addmm(y, weight, weight.t())", False),
    ],
)
def test_comparisons_through_names(tmp_path: Path, lines: str, said: bool) -> None:
    text = WRAPPED.format(loss="p.mean()", shown="0")
    text = text.replace("    loss = p.mean()", f"    {lines}\n    loss = p.mean()")
    assert bool(lines_of(tmp_path, text)) is said


def test_a_criterion_is_another_one_under_a_test_of_its_class(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text(CRITERION.format(name="Pairs", init="", term="a @ a.t()"))
    (tmp_path / "train.py").write_text(
        TRAIN.format(name="Pairs").replace(
            "    loss = criterion(model(x), y)\n",
            "    if isinstance(criterion, torch.nn.MSELoss):\n        loss = criterion(model(x), y).sum()\n"
            "    elif isinstance(criterion, Pairs):\n        loss = criterion(model(x), y)\n",
        )
    )
    found = convert_project(Source.read(tmp_path / "train.py"))[0]
    (line,) = [f.line for f in found.remaining if f.code == "ACC408"]
    assert line == 13


KERNELS = """
import torch

def kernel(x, y):
{distance}
    return torch.exp(-d)

def {name}(a, b):
    return {used}
"""
CDIST = "    d = torch.cdist(x, y)"


@pytest.mark.parametrize(
    ("distance", "used", "found"),
    [
        (CDIST, "kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()", True),
        (CDIST, "kernel(a, b).mean()", False),  # may be rows of one sample, such as its points
        ("    d = ((x.view(x.shape[0], x.shape[1], 1) - y.t()) ** 2).sum(1)", "kernel(a, b).mean()", True),
        ("    d = ((x[:, :, None] - y.T) ** 2).sum(1)", "kernel(a, b).mean()", True),
        (
            "    x = x.unsqueeze(2)\n    y = torch.transpose(y, 0, 1)\n    d = ((x - y) ** 2).sum(1)",
            "kernel(a, b).mean()",
            True,
        ),
        (
            "    m = y.unsqueeze(0)\n    n = x.unsqueeze(1).expand(-1, 3, -1)\n    d = (n - m).pow(2).sum(2)",
            "kernel(a, b).mean()",
            True,
        ),
        ("    n, m = x.unsqueeze(1), y\n    d = (n - m).pow(2).sum(2)", "kernel(a, b).mean()", False),
        (
            "    boxes = y\n    m = boxes.unsqueeze(0)\n    n = x.unsqueeze(1)\n    d = (n - m).sum(2)",
            "kernel(a, b).mean()",
            False,
        ),
        ("    d = ((x.view(x.shape[0], x.shape[1], 1) - y) ** 2).sum(1)", "kernel(a, b).mean()", False),
        ("    weight = y\n    d = ((x.unsqueeze(2) - weight.t()) ** 2).sum(1)", "kernel(a, b).mean()", False),
    ],
)
def test_kernels_between_two_batches(tmp_path: Path, distance: str, used: str, found: bool) -> None:
    (tmp_path / "losses.py").write_text(KERNELS.format(distance=distance, used=used, name="mmd"))
    script = TRAIN.format(name="mmd").replace("criterion = mmd()\n", "").replace("criterion(", "mmd(")
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted"
    assert ("ACC408" in {f.code for f in conversion.remaining}) == found


DENSITY = """
import torch

def density(x, mean):
    return -((x - mean) ** 2)

def pairs(a, b):
    n, d = a.shape
    a = a.{first}
    return density(a, b.{second})
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("view(n, 1, d)", "view(1, n, d)", True),
        ("reshape(1, n, d)", "reshape(n, 1, d)", True),
        ("view(n, 1, d)", "view(n, 1, d)", False),
        ("view(1, n, d)", "view(n, d, 1)", False),
        ("view(n, 1, d)", "view(1, 7, d)", False),
    ],
)
def test_pairs_that_are_handed_to_a_function(tmp_path: Path, first: str, second: str, found: bool) -> None:
    (tmp_path / "pairs.py").write_text(DENSITY.format(first=first, second=second))
    script = TRAIN.format(name="pairs").replace("criterion = pairs()\n", "").replace("losses", "pairs")
    (tmp_path / "train.py").write_text(script.replace("criterion(model(x), y)", "pairs(model(x), y).mean()"))
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert ("ACC408" in codes(conversion)) is found


@pytest.mark.parametrize(
    "term", ["output / output.sum(1, keepdim=True)", "output / y.sum(0)", "y / y.sum(0)"]
)
def test_shares_within_a_sample_or_of_what_the_data_holds(term: str) -> None:
    loss = f"output = model(x)\nloss = F.cross_entropy(output, y) + ({term}).mean()"
    assert "ACC408" not in codes(convert(loss=loss))


SCORED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def {first}(self, x):
        return self.{inner}

    def scores(self, x):
        n, k = {sizes}
        scores = torch.zeros(n, 2, n).to(x.device)
        for j in range(n):
            scores[:, :, j] = {value}
        return scores

    def loss(self, x):
        with torch.no_grad():
            mean = x.mean()
        return self.scores(x).mean() - mean
"""


@pytest.mark.parametrize(
    ("first", "inner", "sizes", "value", "found"),
    [
        ("forward", "out(x)", "x.shape", "(x * x[j]).sum(1)", True),
        ("forward", "out(x)", "x.shape[:2]", "similar(x, x[j])", True),
        ("forward", "out(x)", "x.shape[1:]", "(x * x[j]).sum(1)", False),
        ("forward", "out(x)", "x.shape", "x[j] * 2", False),
        ("forward", "scores(x)", "x.shape", "(x * x[j]).sum(1)", False),
    ],
)
def test_a_matrix_of_samples_that_a_loss_of_the_model_fills(
    first: str, inner: str, sizes: str, value: str, found: bool
) -> None:
    build = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    setup = SCORED.format(first=first, inner=inner, sizes=sizes, value=value)
    conversion = convert(setup=setup, build=build, loss="loss = model.loss(model(x))")
    assert ("ACC408" in {f.code for f in conversion.remaining}) is found


LOG_DENSITY = """
def density(x, mean, width):
    return -((x - mean) ** 2) / width

def log_sum(value, dim=None):
    if dim is not None:
        most = value.max(dim)[0]
        return most + torch.log(torch.sum(torch.exp(value - most), dim=dim))
    else:
        most = torch.max(value)
        summed = torch.sum(torch.exp(value - most))
        return most + torch.log(summed)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return {forward}

    def pairs(self, x):
        n = x.size(0)
        d = 2
        z = self.out(x)
        return density(z.view({first}), z.view({second}), 0.5).sum(-1)

    def loss(self, x):
        return log_sum(self.pairs(x){dim}).mean()
"""


@pytest.mark.parametrize(
    ("first", "second", "forward", "dim", "found"),
    [
        ("n, 1, d", "1, n, d", "self.out(x)", ", dim=1", ["density("]),
        ("n, 1, d // 2, 2", "1, n, d // 2, 2", "self.out(x)", ", dim=1", ["density("]),
        ("d, 1, n", "1, d, n", "self.out(x)", ", dim=1", []),  # not of the samples
        ("n, 1, d", "1, n, d", "self.pairs(x)", ", dim=1", []),  # a layer, such as attention
        ("n, d", "n, d", "self.out(x)", "", ["torch.log(summed)"]),
        ("n, d", "n, d", "self.out(x)", ", dim=1", []),
        ("n, d", "n, d", "self.out(x)", ", dim=1) + log_sum(self.out(x), dim=0", []),
    ],
)
def test_pairs_and_sums_in_a_loss_of_the_model(
    first: str, second: str, forward: str, dim: str, found: list[str]
) -> None:
    build = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    setup = LOG_DENSITY.format(first=first, second=second, forward=forward, dim=dim)
    conversion = convert(setup=setup, build=build, loss="loss = model.loss(x)")
    said = [f.message for f in conversion.remaining if f.code == "ACC408"]
    assert len(said) == len(found)
    assert all(text in message for text, message in zip(found, said, strict=True))
