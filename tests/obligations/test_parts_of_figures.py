"""Cells of tables that rows choose, arrays of figures and parts of them, lists of rows gathered as objects."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate

KNOWLEDGE = Knowledge()
FRAME = """\
import numpy as np
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator, gather_object
accelerator = Accelerator()
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(torch.load("data.pt"), batch_size=8, shuffle=True)
loader = DataLoader(torch.load("data.pt"), batch_size=8)
model, optimizer, train, loader = accelerator.prepare(model, optimizer, train, loader)
for x, n, y in train:
    accelerator.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()
{begin}
for x, n, y in {loader}:
    out = model(x)
    {gather}
    pred = out.argmax(1)
{batch}
{end}
"""
GATHER = "out, y = accelerator.gather_for_metrics((out, y))"
ZIPPED = "    for t, p in zip(y.view(-1), pred.view(-1)):\n        table[t.long(), p.long()] += 1"
NUMBERED = "    for i in range(len(y)):\n        table[y[i].item()][pred[i].item()] += 1"
LISTS = "    rows.append(torch.cat([y[:, None], out], 1).numpy())"
EXTENDED = "    rows.extend(pred)"


def named(begin: str, batch: str, end: str, gather: str = GATHER, loader: str = "loader") -> list[Obligation]:
    text = FRAME.format(begin=begin, batch=batch, end=end, gather=gather, loader=loader)
    checked = validate(text, None, KNOWLEDGE)
    assert not checked.unread
    return [one for status in (Status.NAMED, Status.LOOP) for one in checked.of(status)]


@pytest.mark.parametrize("batch", [ZIPPED, NUMBERED])
@pytest.mark.parametrize("made", ["torch.zeros(2, 2)", "np.zeros((2, 2))"])
@pytest.mark.parametrize("shown", ["table", "table.diagonal() / table.sum()"])
def test_cells_that_the_rows_of_all_ranks_choose(batch: str, made: str, shown: str) -> None:
    end = f"accelerator.print({shown})"
    assert named(f"table = {made}", batch, end) == []
    assert named(f"table = {made}", batch, end, gather="pass")


@pytest.mark.parametrize(
    ("batch", "end"),
    [
        (LISTS, "accelerator.print(np.concatenate(rows)[:, 0].mean())"),
        (
            LISTS,
            "table = np.concatenate(rows)\nchosen = table[:, 0] > 0\naccelerator.print(table[chosen].mean())",
        ),
        (EXTENDED, "accelerator.print(len([p for p in torch.stack(rows) if p > 0]))"),
        (EXTENDED, "for p in rows:\n    accelerator.print(p)"),
    ],
)
def test_parts_of_the_rows_of_all_ranks(batch: str, end: str) -> None:
    assert named("rows = []", batch, end) == []
    assert named("rows = []", batch, end, gather="pass")


@pytest.mark.parametrize(
    "end",
    [
        "accelerator.print(np.array(sums) / len(loader))",
        "accelerator.print((torch.tensor(sums) / len(loader))[0])",
    ],
)
def test_totals_side_by_side(end: str) -> None:
    batch = "    sums[0] += (pred == y).float().mean()\n    sums[1] += out.abs().mean()"
    assert named("sums = [0, 0]", batch, end) == []
    assert named("sums = [0, 0]", batch, end.replace("len(loader)", "100"))


def test_a_mean_in_an_array_of_one_adds_up_as_it_is() -> None:
    batch = (
        "    part = (pred == y).float().sum(0, keepdim=True) / y.size(0)\n    total += part[0] * y.size(0)"
    )
    assert named("total = 0", batch, "accelerator.print(total / len(loader.dataset))") == []
    assert named("total = 0", batch, "accelerator.print(total / len(loader.dataset))", gather="pass")


@pytest.mark.parametrize("together", ["rows = gather_object(rows)", "pass"])
def test_lists_gathered_as_objects_after_their_loop(together: str) -> None:
    end = f"{together}\naccelerator.print(np.concatenate(rows).mean())"
    found = named("rows = []", "    rows.append(pred.cpu().numpy())", end, gather="pass")
    assert bool(found) == (together == "pass")


@pytest.mark.parametrize(("loader", "right"), [("loader", True), ("train", False)])
@pytest.mark.parametrize("noise", ["torch.randn_like(out)", "torch.rand(out.shape, device=out.device)"])
def test_noise_for_gathered_rows_is_each_process_s_in_a_shuffled_pass(
    loader: str, right: bool, noise: str
) -> None:
    batch = f"    total += (out + {noise}).mean()"
    end = f"if total / len({loader}) > 1:\n    accelerator.wait_for_everyone()"
    assert (named("total = 0", batch, end, loader=loader) == []) == right


@pytest.mark.parametrize(
    ("forward", "right"),
    [
        ("torch.stack([out[i][n[i] - 1] for i in range(len(n))])", True),
        ("torch.stack([row[k - 1] for row, k in zip(out, n)])", True),
        ("torch.stack([out[i] - out[n == n[i]].mean(0) for i in range(len(n))])", False),
    ],
)
def test_a_part_of_each_row_is_no_choice_among_rows(forward: str, right: bool) -> None:
    text = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x, n):
        out, _ = self.rnn(x)
        return self.head({forward})


accelerator = Accelerator()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(8, 3, 4), torch.randint(1, 3, (8,)), torch.randint(0, 2, (8,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, n, y in loader:
    accelerator.backward(nn.functional.cross_entropy(model(x, n), y))
    optimizer.step()
"""
    assert (validate(text, None, KNOWLEDGE).of(Status.NAMED) == []) == right


@pytest.mark.parametrize("end", ["sys.exit(main())", "from absl import app\napp.run(main)", "stop(1)"])
def test_what_comes_after_a_call_that_never_returns_is_not_done(end: str) -> None:
    begin = (
        f"def main(argv=None):\n    pass\n\n\ndef stop(code):\n    sys.exit(code)\n\n\n{end}\nprint('done')"
    )
    text = f"import sys\nfrom accelify.runtime import Accelerator\naccelerator = Accelerator()\n{begin}\n"
    assert validate(text, None, KNOWLEDGE).of(Status.NAMED) == []
    assert validate(text.replace(end, "main()"), None, KNOWLEDGE).of(Status.NAMED)


@pytest.mark.parametrize(
    "run",
    ["exec(open(path).read())", "runpy.run_path(path)", "SourceFileLoader('config', path).load_module()"],
)
def test_files_that_a_path_runs_are_not_read(run: str) -> None:
    text = f"import runpy, sys\nfrom importlib.machinery import SourceFileLoader\npath = sys.argv[1]\n{run}\n"
    assert [one.text for one in validate(text, None, KNOWLEDGE).unread]


BESIDE = """\
for epoch in range(3):
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        step += 1
    {shown}
"""


@pytest.mark.parametrize("figure", ["loss.item()", "2 * loss.item()"])
@pytest.mark.parametrize(
    "shown",
    [
        "print(f'{{step}} {{{}}}')",
        "print('%d %f' % (step, {}))",
        "print('{{}} {{}}'.format(step, {}))",
        "print(step, {})",
    ],
)
def test_figures_of_several_kinds_in_one_line_are_each_shown_as_what_they_are(
    shown: str, figure: str
) -> None:
    head = FRAME.partition("for x, n, y in train")[0] + "step = 0\n"
    found = validate(head + BESIDE.format(shown=f"accelerator.{shown.format(figure)}"), None, KNOWLEDGE)
    assert not found.of(Status.NAMED)
    assert {one.found.partition(", ")[0] for one in found.of(Status.LOOP)} == {
        "printed as counts of steps: on N processes each makes 1/N of the steps",
        "printed after the loop over batches",
    }
