"""Functions of other modules that read batches on the host: they are given a copy, or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source
from accelify.writer.errors import EditError

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from helpers import sort_batch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8)), batch_size=2)
for batch in loader:
    x, ids = sort_batch(batch)
    loss = model(x.to(device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SORTING = """\
import numpy as np
import torch


def sort_batch(batch):
    x, lengths = batch
    order = torch.sort(lengths, 0, True)[1]
    {line}
    return x[order], ids
"""


def together(folder: Path, helpers: str, script: str = TRAIN) -> list[Conversion]:
    (folder / "helpers.py").write_bytes(helpers.encode())
    (folder / "train.py").write_text(script)
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    return found


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("ids = lengths[order].numpy()", "ids = lengths[order].cpu().numpy()"),
        ("lengths = lengths[order].numpy(); ids = lengths", "lengths = lengths[order].cpu().numpy(); ids = lengths"),
        ("ids = [int(i) for i in order.data.numpy()]", "ids = [int(i) for i in order.data.cpu().numpy()]"),
        ("ids = (order + 1).numpy()", "ids = (order + 1).cpu().numpy()"),
    ],
)  # fmt: skip
def test_what_a_helper_reads_on_the_host_is_copied_there(tmp_path: Path, line: str, after: str) -> None:
    found = together(tmp_path, SORTING.format(line=line))
    assert [conversion.source.path.name for conversion in found] == ["train.py", "helpers.py"]  # type: ignore[union-attr]
    assert found[1].new_text == SORTING.format(line=after)
    assert "ACC114" not in {f.code for conversion in found for f in conversion.remaining}
    # The script itself is what it would have been.
    assert "x, ids = sort_batch(batch)\n    loss = model(x).pow(2).mean()\n" in found[0].new_text


def test_what_would_not_run_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edits of a helper are looked at like all others; those of the script do not depend on them."""

    def refused(*_: object) -> None:
        raise EditError("`x` would be bound nowhere")

    monkeypatch.setattr("accelify.minimal_module_edits.check", refused)
    script, helper = together(tmp_path, SORTING.format(line="ids = lengths[order].numpy()"))
    assert script.changed
    assert (helper.status, helper.changed) == ("refused", False)
    assert "`x` would be bound nowhere" in helper.reason
    assert [f.message.endswith("(not done: `x` would be bound nowhere)") for f in helper.remaining] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "ids = lengths[order].cpu().numpy()",
        "lengths = lengths.cpu(); ids = lengths.numpy()",
        "ids = order.tolist()",
        "ids = np.arange(len(order))",
        "ids = np.zeros(x.shape[0])",
    ],
)
def test_a_helper_that_copies_them_itself_is_left_alone(tmp_path: Path, line: str) -> None:
    found = together(tmp_path, SORTING.format(line=line))
    assert len(found) == 1
    assert "ACC114" not in {f.code for f in found[0].remaining}


def test_so_is_one_that_the_script_hands_what_stays_on_the_host(tmp_path: Path) -> None:
    script = TRAIN.replace("sort_batch(batch)\n", "batch\n").replace(
        "for batch", "sort_batch([torch.randn(3, 4), torch.ones(3)])\nfor batch"
    )
    found = together(tmp_path, SORTING.format(line="ids = lengths[order].numpy()"), script)
    assert len(found) == 1
    assert "ACC114" not in {f.code for f in found[0].remaining}


def said(found: list[Conversion]) -> list[str]:
    assert len(found) == 1
    return [f.message for f in found[0].remaining if f.code == "ACC114"]


def test_what_may_be_an_array_for_others_is_named(tmp_path: Path) -> None:
    assert said(together(tmp_path, SORTING.format(line="ids = np.bincount(order)"))) == [
        "`sort_batch` reads a tensor on the host that lies on the device now (helpers.py, line 8): "
        "put `.cpu()` after it there"
    ]


def test_so_is_what_a_module_reads_that_trains_itself(tmp_path: Path) -> None:
    helpers = SORTING.format(line="ids = lengths[order].numpy()") + "\n\ndef tune(x):\n    x.backward()\n"
    assert said(together(tmp_path, helpers))


def test_what_a_helper_hands_to_another_one(tmp_path: Path) -> None:
    inner = "\n\ndef as_list(rows):\n    return list(rows{}.numpy())\n"
    helpers = SORTING.format(line="ids = as_list(order)") + inner
    found = together(tmp_path, helpers.replace("{}", ""))
    assert found[1].new_text == helpers.replace("{}", ".cpu()")


def test_nothing_else_of_the_module_is_touched(tmp_path: Path) -> None:
    other = "\n\ndef keep(path):\n    print(path)\n    open(path, 'w').write('1')\n    return np.ones(2)\n"
    helpers = SORTING.format(line="ids = order.numpy()") + other
    found = together(tmp_path, helpers.replace("\n", "\r\n"))
    assert found[1].new_text == helpers.replace("order.numpy()", "order.cpu().numpy()").replace("\n", "\r\n")
    assert [(f.code, f.line) for f in found[1].applied] == [("ACC114", 8)]
    again = convert_project(found[1].source)
    assert again[0].status == "unchanged"


EVALUATION = """\
    with torch.no_grad():
        for a, b in test_loader:
            output = model(a)
            total += nn.functional.cross_entropy(output, b)
            right += {call}
        total /= len(test_loader)
    print(total, right)
"""
SCORES = """\
import torch


def score(y_true, y_pred):
    return torch.eq(y_true, y_pred).sum().item() / len(y_pred)


def moving(y_true, y_pred):
    return (y_true.to(y_pred.device) == y_pred).sum().item()


def apart(y_true, y_pred):
    return y_true.sum().item() + y_pred.sum().item()
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("score(b, output.argmax(1))", "score(b, output.argmax(1).cpu())"),
        ("score(y_true=b, y_pred=output.argmax(1))", "score(y_true=b, y_pred=output.argmax(1).cpu())"),
        ("moving(b, output.argmax(1))", "moving(b, output.argmax(1))"),
        ("apart(b, output.argmax(1))", "apart(b, output.argmax(1))"),
    ],
)
def test_what_meets_in_a_helper_is_brought_together(tmp_path: Path, call: str, after: str) -> None:
    script = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from helpers import apart, moving, score

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=2)
test_loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.ones(8).long()), batch_size=3)
device = "cuda" if torch.cuda.is_available() else "cpu"
other = nn.Linear(4, 2).to(device)
right, total = 0, 0
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{EVALUATION.format(call=call)}"""
    text = together(tmp_path, SCORES, script)[0].new_text
    assert f"right += {after}\n" in text


EVALUATE = """\
import numpy as np
import torch


def evaluate(net, loader, names):
    net.eval()
    table = np.zeros([2, 2])
    {head}
        {batch}
        output = net(x)
        _, predicted = torch.max(output.data, 1)
        {read}
    return table
"""
EVALUATED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from helpers import evaluate

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(MNIST("data"), batch_size=2)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
table = evaluate(model, loader, ["a", "b"])
"""


@pytest.mark.parametrize(
    ("head", "batch", "read"),
    [
        ("for x, y in loader:", "y = y.cpu()", "table[y[0].numpy(), 0] += 1"),
        ("for x, y in loader:", "", "table[y.tolist(), predicted.cpu().numpy()] += 1"),
        ("for i, (x, y) in enumerate(loader):", "", "table[np.array(i), 0] += 1"),
        # Its batches can hold lists, which NumPy reads as well.
        ("for x, y in loader:", "", "table += np.mean(y)"),
        ("for x in names:", "", "table += x.numpy()"),
    ],
)
def test_a_helper_that_copies_the_batches_of_a_loader_is_left_alone(
    tmp_path: Path, head: str, batch: str, read: str
) -> None:
    found = together(tmp_path, EVALUATE.format(head=head, batch=batch or "pass", read=read), EVALUATED)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("head", "batch", "read", "after"),
    [
        ("for x, y in loader:", "", "table[y[0].numpy(), 0] += 1", "table[y[0].cpu().numpy(), 0] += 1"),
        ("for i, data in enumerate(loader):", "x, y = data", "i += y.numpy()", "i += y.cpu().numpy()"),
        ("for x, y in tqdm(loader):", "", "table += predicted.numpy()", "table += predicted.cpu().numpy()"),
        ("for x, y in loader:", "", "n = (y == predicted).sum().numpy()", "n = (y == predicted).sum().cpu().numpy()"),
        ("for x, y in loader:", "", "for a, b in zip(x, y): b.numpy()", "for a, b in zip(x, y): b.cpu().numpy()"),
        ("if True:", "x, y = next(iter(loader))", "table += y.numpy()", "table += y.cpu().numpy()"),
    ],
)  # fmt: skip
def test_what_a_helper_reads_of_the_batches_of_a_loader_is_copied_there(
    tmp_path: Path, head: str, batch: str, read: str, after: str
) -> None:
    helper = EVALUATE.replace("{head}", head).replace("{batch}", batch or "pass")
    found = together(tmp_path, helper.replace("{read}", read), EVALUATED)
    assert found[1].new_text == helper.replace("{read}", after)
    assert "ACC114" not in {f.code for conversion in found for f in conversion.remaining}


def test_what_a_helper_hands_on_of_the_batches_of_a_loader(tmp_path: Path) -> None:
    inner = "\n\ndef count(table, target):\n    table[target.numpy()] += np.sum(target)\n"
    helper = EVALUATE.format(head="for x, y in loader:", batch="pass", read="count(table, y)") + inner
    found = together(tmp_path, helper, EVALUATED)
    assert found[1].new_text == helper.replace("target.numpy", "target.cpu().numpy")


SHOWING = """\
import matplotlib.pyplot as plt
import torch
import torchvision
from torchvision.utils import make_grid


def show(batches, path):
    {drawn}
    grid = {grid}(images[:4])
    plt.imsave(path, grid.numpy())
"""
SHOWN = EVALUATED.replace("evaluate\n", "show\n").replace(
    'table = evaluate(model, loader, ["a", "b"])', 'show({shown}, "a.png")'
)


def test_a_picture_of_samples_that_are_given_is_drawn_by_one_process(tmp_path: Path) -> None:
    script = SHOWN.format(shown="torch.randn(4, 3, 8, 8)")
    text = together(tmp_path, SHOWING.format(drawn="images = batches", grid="make_grid"), script)[0].new_text
    assert "if accelerator.is_main_process:\n    show(" in text


@pytest.mark.parametrize("grid", ["make_grid", "torchvision.utils.make_grid"])
@pytest.mark.parametrize(
    "drawn",
    [
        "images, labels = next(iter(batches))",
        "it = iter(batches)\n    images, labels = next(it)",
        "it = iter(batches)\n    images, labels = it.next()",
    ],
)
def test_a_picture_of_a_batch_that_a_helper_draws_is_drawn_by_all(
    tmp_path: Path, drawn: str, grid: str
) -> None:
    """One process that begins a pass alone would wait for the others, which agree with it on the order."""
    helper = SHOWING.format(drawn=drawn, grid=grid)
    found = together(tmp_path, helper, SHOWN.format(shown="loader"))
    assert "\nshow(loader" in found[0].new_text
    (message,) = [f.message for f in found[0].remaining if f.code == "ACC210"]
    assert "it reads batches" in message
    assert found[1].new_text == helper.replace("grid.numpy()", "grid.cpu().numpy()")
