"""A flag that a function sets which a library may call is not known: what stands after a test of it is reached."""

from __future__ import annotations

import pytest

from tests.proving.several_programs import findings

FLAGS = {
    "a global of a signal": ("global stop\n    stop = True", "stop", "signal.signal(signal.SIGTERM, asked)"),
    "an element": ('state["stop"] = True', 'state["stop"]', "signal.signal(signal.SIGTERM, asked)"),
    "a global of an exit": ("global stop\n    stop = True", "stop", "atexit.register(asked)"),
    "a global of a thread": (
        "global stop\n    stop = True",
        "stop",
        "threading.Thread(target=asked).start()",
    ),
    "a global of an unknown library": ("global stop\n    stop = True", "stop", "somewhere.on_end(asked)"),
}
PROGRAM = """
import atexit
import signal
import threading

import somewhere

stop = False
state = {{"stop": False}}


def asked(*given):
    {sets}


{registers}
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    if {flag}:
        break
    opt.zero_grad()
    model(torch.ones(2, 4)).mean().backward()
    opt.step()
    {saves}
"""
ALL = 'torch.save(model.module.state_dict(), "latest.pth")'
ONE = f"if dist.get_rank() == 0:\n        {ALL}"


@pytest.mark.parametrize(("sets", "flag", "registers"), FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize(("saves", "codes"), [(ALL, ["ACC702"]), (ONE, [])], ids=["by all", "by one"])
def test_what_stands_after_a_flag(sets, flag, registers, saves, codes, tmp_path):
    text = PROGRAM.format(sets=sets, flag=flag, registers=registers, saves=saves)
    found = [one for one in findings(text, tmp_path) if one.severity in ("error", "warning")]
    assert [one.code for one in found] == codes
