"""An Accelerator that is told to accumulate the gradients of one batch accumulates none."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import GROUP, named

TEXT = """
accelerator = Accelerator(gradient_accumulation_steps={steps})
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
for x, y in loader:
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(("steps", "found"), [("1", []), ("4", ["ACC705"]), ("len(data)", ["ACC705"])])
def test_batches_have_to_stand_under_accumulate_where_there_are_several(steps, found, tmp_path):
    assert [code for code, _ in named(TEXT.format(steps=steps), tmp_path, "accelerate")] == found


UNSYNCHRONISED = (
    GROUP
    + """
from contextlib import nullcontext
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
every, first = len(os.environ), True
for number, (x, y) in enumerate(loader):
    {around}
        F.mse_loss(model(x), y).backward()
    {line}
    if (number + 1) % every == 0:
        opt.step()
        opt.zero_grad()
"""
)
BY_HAND = "for p in model.parameters(): dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)"


@pytest.mark.parametrize(
    ("around", "line", "is_named"),
    [
        ("with model.no_sync():", "pass", True),
        ("with model.no_sync() if every > 1 else nullcontext():", "pass", True),
        ("with model.no_sync() if (number + 1) % every else nullcontext():", "pass", False),
        ("with model.no_sync() if first else nullcontext():", "first = number > 3", False),
        ("with model.no_sync():", "F.mse_loss(model(x), y).backward()", False),
        ("with model.no_sync():", BY_HAND, False),
        ("with nullcontext():", "pass", False),
    ],
)
def test_one_backward_of_so_many_averages_the_gradients(around, line, is_named, tmp_path):
    found = [line for code, line in named(UNSYNCHRONISED.format(around=around, line=line), tmp_path)]
    assert found == [around] * is_named
