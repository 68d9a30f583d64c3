"""The weights of a model of which each process has a part: all have to come where its state is asked for."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import named

PROGRAM = """
from accelerate import DeepSpeedPlugin, FullyShardedDataParallelPlugin

accelerator = Accelerator({plugin})
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
for x, y in loader:
    opt.zero_grad()
    accelerator.backward(F.mse_loss(model(x), y))
    opt.step()
accelerator.wait_for_everyone()
{saves}
"""
BY_MAIN = """\
if accelerator.is_main_process:
    weights = accelerator.get_state_dict(model)
    torch.save(weights, "weights.pt")
"""
BY_ALL = """\
weights = accelerator.get_state_dict(model)
if accelerator.is_main_process:
    torch.save(weights, "weights.pt")
"""


@pytest.mark.parametrize(
    ("plugin", "divides"),
    [
        ("fsdp_plugin=FullyShardedDataParallelPlugin()", True),
        ("deepspeed_plugin=DeepSpeedPlugin(zero_stage=3)", True),
        ("deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("saves", [BY_MAIN, BY_ALL], ids=["by main", "by all"])
def test_states_that_are_put_together(plugin, divides, saves, tmp_path):
    found = named(PROGRAM.format(plugin=plugin, saves=saves), tmp_path, "accelerate")
    line = "weights = accelerator.get_state_dict(model)"
    assert found == [("ACC704", line)] * (divides and saves is BY_MAIN)
