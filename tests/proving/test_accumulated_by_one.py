"""An Accelerator that is told to accumulate the gradients of one batch accumulates none."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

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
