"""Batches that a loop moves entry by entry: what is read of them behind it lies where the loop has put it."""

from __future__ import annotations

import pytest

from tests.transforms.support import check_transformed

SETUP = """\
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {'x': torch.randn(4), ('y', 0): torch.ones(4)}

def move(rows):
    for key, value in rows.items():
        rows[key] = value.to(device)

def move_two(rows):
    rows['x'] = rows['x'].to(device)
    rows[('y', 0)] = rows[('y', 0)].to(device)"""
BUILD = "model = nn.Linear(4, 4).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
# Means of batches of different sizes: every process goes through all of it, and the loader is not prepared.
END = """\
total = 0
rows_loader = DataLoader(Rows(), batch_size=9)
with torch.no_grad():
    for rows in rows_loader:
{moving}
        output = model(rows['x'{argument}
        total += F.mse_loss({output}, rows[('y', 0)])
    total /= len(rows_loader)
{shown}(total)"""


def check(moving: str, argument: str, output: str) -> None:
    lines = "\n".join(f"        {line}" for line in moving.splitlines())
    before = END.format(moving=lines, argument="])", output="output", shown="print")
    moved = lines.replace(".cuda()", ".to(accelerator.device)")
    after = END.format(moving=moved, argument=argument, output=output, shown="accelerator.print")
    check_transformed(
        "end", before, after, setup=SETUP, build=BUILD, batch="x, y = x.to(device), y.to(device)"
    )


@pytest.mark.parametrize(
    "moving",
    [
        "for key, value in rows.items():\n    rows[key] = value.to(device)",
        "for key in rows:\n    rows[key] = rows[key].to(device)",
        "for key in rows.keys():\n    if torch.is_tensor(rows[key]):\n        rows[key] = rows[key].cuda()",
        "for key in list(rows.keys()):\n    rows[key] = rows[key].to(device)",
        "move(rows)",
        "rows['x'] = rows['x'].to(device)\nrows['y', 0] = rows['y', 0].to(device)",
        "move_two(rows)",
    ],
)
def test_what_a_loop_has_moved_is_on_the_device(moving: str) -> None:
    check(moving, "])", "output")


@pytest.mark.parametrize(
    "moving",
    [
        "for key, value in rows.items():\n    print",
        "for key, value in rows.items():\n    other = {}\n    other[key] = value.to(device)",
        "rows['z'] = rows['x'].to(device)",
    ],
)
def test_what_it_has_not_moved_follows_the_model(moving: str) -> None:
    check(moving, "].to(accelerator.device))", "output.cpu()")


@pytest.mark.parametrize(
    ("moving", "argument"),
    [
        ("sample[0] = sample[0].to(device)", "sample[0]"),
        ("sample[0] = sample[0].cuda()", "sample[0]"),
        ("sample[1] = sample[0].to(device)", "sample[0].to(accelerator.device)"),
        ("sample[0] = sample[1].to(device)", "sample[0].to(accelerator.device)"),
    ],
)
def test_an_element_of_a_batch_that_is_taken_by_hand(moving: str, argument: str) -> None:
    end = "held = DataLoader(Rows(), batch_size=4)\nsample = next(iter(held))\n{}\nmodel.eval()\noutput = model({})"
    before = end.format(moving, "sample[0]")
    after = end.format(moving.replace(".cuda()", ".to(accelerator.device)"), argument)
    check_transformed(
        "end", before, after, setup=SETUP, build=BUILD, batch="x, y = x.to(device), y.to(device)"
    )
