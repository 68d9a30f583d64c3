"""Devices that are read off tensors, and no choice of the script's."""

from __future__ import annotations

import pytest

from tests.transforms.support import codes, convert

LOSS = "loss = model(rows).pow(2).mean()"
READY = "rows = torch.randn(64, 4)"
EMA = (
    "class Average:\n    def copy(self, module):\n"
    "        made = type(module)(module.config).to(module.config.device)\n"
    "        made.load_state_dict(module.state_dict())\n        return made\n"
)


@pytest.mark.parametrize(
    "helper",
    [
        "def take(table, t):\n    return table.gather(0, t.to(table.device))",
        "def take(table, t):\n    return t.to(table.device) + table.mean()",
        "def take(table, t):\n    t = t.to(device=table.device)\n    return torch.dot(table, t)",
        "def take(net, t):\n    return t.to(net.weight.device)",
        EMA,
    ],
)
def test_what_is_read_off_leaves_the_script_on_the_cpu(helper: str) -> None:
    conversion = convert(setup=helper, ready=READY, loss=LOSS)
    assert "Accelerator(cpu=True)" in conversion.new_text
    assert "ACC410" not in codes(conversion)


@pytest.mark.parametrize(
    "helper",
    [
        "def take(args, t):\n    return t.to(args.device)",
        "def take(runner, t):\n    return runner.run(t.to(runner.device))",
        f"{EMA}import yaml",
        f"{EMA}def tell(config, name):\n    config.device = name",
    ],
)
def test_what_may_be_a_choice(helper: str) -> None:
    assert "cpu=True" not in convert(setup=helper, ready=READY, loss=LOSS).new_text
