"""Questions for the class of what is prepared, and waits for the main process where the others do not come."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate

TEXT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from accelify.runtime import Accelerator
class Net(torch.nn.Linear):
    pass
accelerator = Accelerator()
model = Net(4, 1)
loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
{asked}
for (x,) in loader:
    optimizer.zero_grad()
    accelerator.backward(model(x).mean())
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("asked", "demand"),
    [
        ("wide = model.__class__.__name__ == 'Net'", "misuse"),
        ("wide = type(model) is Net", "misuse"),
        ("wide = accelerator.unwrap_model(model).__class__.__name__ == 'Net'", ""),
        ("whole = type(loader) is DataLoader", "misuse"),
        ("whole = isinstance(loader, DataLoader)", ""),
        ("with accelerator.main_process_first():\n    data = torch.load('data.pt')", ""),
        (
            "if accelerator.is_main_process:\n    with accelerator.main_process_first():\n"
            "        data = torch.load('data.pt')",
            "all ranks",
        ),
    ],
)
def test_what_is_prepared_has_another_class(asked: str, demand: str) -> None:
    found = validate(TEXT.format(asked=asked), None, Knowledge()).of(Status.NAMED)
    line = TEXT.partition("{asked}")[0].count("\n") + 1
    here = [one for one in found if line <= one.line <= line + asked.count("\n")]
    assert [one.sink if demand == "misuse" else one.demand for one in here] == [demand] * bool(demand)
