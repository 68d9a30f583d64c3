"""Tables and noise that a function of another module makes on the host for a batch that prepare has placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.convert import convert_project
from accelify.source import Source

TRAIN = """\
import torch
from helpers import made
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(16, 3), torch.randint(0, 4, (16,))), batch_size=4)
model = torch.nn.Linear(3, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    y = made(y, 4)
    x, y = x.to(device), y.to(device)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def together(folder: Path, body: str, script: str = TRAIN) -> list[Conversion]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "helpers.py").write_text(f"import torch\n\n\ndef made(rows, count):\n{lines}")
    (folder / "train.py").write_text(script)
    found = convert_project(Source.read(folder / "train.py"))
    assert found[0].status == "converted", found[0].reason
    return found


def said(found: list[Conversion]) -> list[str]:
    return [f.message for f in found[0].remaining if f.code == "ACC120"]


SCATTERED = "return table.scatter_(1, rows.view(-1, 1), 1)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.zeros(rows.size(0), count)", "torch.zeros(rows.size(0), count, device=rows.device)"),
        (
            "torch.FloatTensor(rows.size(0), count).zero_()",
            "torch.FloatTensor(rows.size(0), count).to(rows.device).zero_()",
        ),
        (
            "torch.empty(size=(4, count)).fill_(0.1)",
            "torch.empty(size=(4, count), device=rows.device).fill_(0.1)",
        ),
        ("torch.rand(len(rows), count) * 0.1", "torch.rand(len(rows), count).to(rows.device) * 0.1"),
    ],
)
def test_a_table_is_made_where_the_batch_is(tmp_path: Path, before: str, after: str) -> None:
    found = together(tmp_path, f"table = {before}\n{SCATTERED}")
    assert [conversion.source.path.name for conversion in found] == ["train.py", "helpers.py"]  # type: ignore[union-attr]
    assert found[1].new_text == found[1].source.text.replace(before, after)
    assert [(f.code, f.line) for f in found[1].applied] == [("ACC120", 5)]
    assert not said(found)
    assert convert_project(found[1].source)[0].status == "unchanged"


@pytest.mark.parametrize(
    ("body", "maker"),
    [
        ("return torch.eye(count)[rows]", "torch.eye(count"),
        ("kinds = torch.arange(count)\nreturn rows.view(-1, 1) == kinds", "torch.arange(count"),
        ("rows = rows.long()\nreturn torch.where(rows > 1, rows, torch.zeros(4))", "torch.zeros(4"),
        ("kept = rows.float()\nkept += torch.ones(4)\nreturn kept", "torch.ones(4"),
        # Up to the line from which the parameter is something else.
        (
            "table = torch.zeros(4, count).scatter_(1, rows.view(-1, 1), 1)\nrows = other(table)\nreturn rows",
            "torch.zeros(4, count",
        ),
    ],
)
def test_whatever_it_is_made_for(tmp_path: Path, body: str, maker: str) -> None:
    found = together(tmp_path, body)
    assert found[1].new_text == found[1].source.text.replace(maker, f"{maker}, device=rows.device")


def test_so_is_one_that_a_helper_of_the_helper_makes(tmp_path: Path) -> None:
    lines = [
        "def inside(rows):",
        "    table = torch.zeros(4, count)",
        f"    {SCATTERED}",
        "return inside(rows.long())",
    ]
    found = together(tmp_path, "\n".join(lines))
    assert "torch.zeros(4, count, device=rows.device)" in found[1].new_text


def test_what_the_script_reads_of_it_on_the_host_is_fetched(tmp_path: Path) -> None:
    script = TRAIN.replace("made(y, 4)\n", "made(y, 4)\n    print(y.numpy().sum())\n")
    found = together(tmp_path, f"table = torch.zeros(4, count)\n{SCATTERED}", script)
    assert "y.cpu().numpy()" in found[0].new_text


@pytest.mark.parametrize(
    "body",
    [
        "table = torch.zeros(4, count, device=rows.device)\n" + SCATTERED,
        "table = torch.zeros(4, count).to(rows.device)\n" + SCATTERED,
        "table = torch.zeros(4, count)\nif rows.is_cuda:\n    table = table.cuda()\n" + SCATTERED,
        "rows = rows.cpu()\ntable = torch.zeros(4, count)\n" + SCATTERED,
        f"for i in range(2):\n    table = torch.zeros(4, count)\n    {SCATTERED[7:]}\n    rows = other(table)",
        "return torch.zeros(4, count).scatter_(1, rows.view(-1, 1).cpu(), 1)",
        # One number goes with tensors anywhere, as an index too, and so does what is only copied.
        "return rows * torch.tensor(0.5) + torch.ones(3).sum()",
        "table = torch.zeros(4, count)\nfor i in range(4):\n    table[i, rows[i]] = 1\nreturn table",
        "table = torch.zeros(4)\ntable.copy_(rows)\nreturn table",
        # A tensor of the device takes an index from the host.
        "return rows[torch.randperm(len(rows))]",
        "return torch.zeros(rows.shape[0], count)",
    ],
)
def test_what_meets_nothing_there_stays(tmp_path: Path, body: str) -> None:
    found = together(tmp_path, body)
    assert len(found) == 1
    assert not said(found)


def test_so_does_what_is_handed_what_was_on_the_device(tmp_path: Path) -> None:
    moved = "    x, y = x.to(device), y.to(device)\n"
    script = TRAIN.replace(f"    y = made(y, 4)\n{moved}", f"{moved}    y = made(y.cpu(), 4)\n")
    found = together(tmp_path, f"table = torch.zeros(4, count)\n{SCATTERED}", script)
    assert len(found) == 1
    assert not said(found)


def test_what_may_be_no_tensor_is_named(tmp_path: Path) -> None:
    script = TRAIN.replace("y = made(y, 4)", "y = made([x, y], 4)")
    found = together(tmp_path, "return torch.eye(count)[rows[1].long()]", script)
    assert len(found) == 1
    assert said(found) == [
        "`made` makes `torch.eye(count)` on the host (helpers.py, line 5) for what lies on the device now: "
        "make it on the device of what it is handed there"
    ]


@pytest.mark.parametrize(
    "body",
    [
        f"table = torch.zeros(4, count)\ntable.numpy()\n{SCATTERED}",
        f"table = torch.zeros(4, count)\nrows.mean().backward()\n{SCATTERED}",
    ],
)
def test_so_is_what_is_read_as_an_array_or_in_a_module_that_trains(tmp_path: Path, body: str) -> None:
    found = together(tmp_path, body)
    assert len(found) == 1
    assert len(said(found)) == 1
