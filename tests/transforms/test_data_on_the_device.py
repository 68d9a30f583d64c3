"""Data sets that lie on the GPU before any loop: what is collected of them was never on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source

TRAIN = """\
import torch
from loaders import make_loader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
table = torch.randn(64, 3).numpy()
loader, test_loader = make_loader(table, table, True), make_loader(table, table, False)
model = torch.nn.Linear(3, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.l1_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
outputs, targets = [], []
with torch.no_grad():
    for x, y in test_loader:
        outputs.append(model(x.to(device)))
        targets.append(y)
print((torch.cat(outputs).cpu() - torch.cat(targets).cpu()).abs().mean().item())
"""
LOADERS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader(x, y, shuffle):
    kind = {kind}
{body}
"""
GIVEN = "    return DataLoader(TensorDataset(kind(x), kind(y)), batch_size=8, shuffle=shuffle)"
NAMED = """\
    x, y = kind(x), kind(y)
    data = TensorDataset(x, y)
    return DataLoader(data, batch_size=8, shuffle=shuffle)"""


@pytest.mark.parametrize("body", [GIVEN, NAMED])
@pytest.mark.parametrize(
    ("kind", "fetched"),
    [
        ("torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor", False),
        ("torch.cuda.FloatTensor", False),
        ("torch.FloatTensor", True),
        ("torch.tensor", True),
    ],
)
def test_what_is_collected_goes_to_the_host_where_it_was_there(
    tmp_path: Path, body: str, kind: str, fetched: bool
) -> None:
    (tmp_path / "loaders.py").write_text(LOADERS.format(kind=kind, body=body))
    (tmp_path / "train.py").write_text(TRAIN)
    conversion = convert_project(Source.read(tmp_path / "train.py"))[0]
    assert conversion.status == "converted", conversion.reason
    lines = [one for one in conversion.new_text.splitlines() if "metrics(" in one or "targets.append" in one]
    assert any("metrics(" in one for one in lines)
    assert any(".cpu()" in one for one in lines) is fetched
