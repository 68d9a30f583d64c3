"""ACC410: a device that another module keeps for the script, by an option that no longer counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import frame

ENV = """
_device = None

def set_device(dev):
    global _device
    {keep}
def get_device():
    return _device
"""


@pytest.mark.parametrize(
    ("keep", "given", "said"),
    [
        ("_device = dev", "options['device']", True),
        ("_device = dev", "'cuda'", False),
        ("_device = 'cuda'", "options['device']", False),
    ],
)
def test_what_is_given_to_another_module_for_the_device(
    tmp_path: Path, keep: str, given: str, said: bool
) -> None:
    (tmp_path / "env.py").write_text(ENV.format(keep=keep))
    script = frame(
        imports="from env import get_device, set_device",
        setup="import sys\noptions = {'device': sys.argv[1]}\n",
        ready=f"set_device({given})\ndevice = get_device()\nmodel.to(device)\n",
        loss="loss = F.cross_entropy(model(x.to(device)), y.to(device))\n",
    )
    found = convert_source(Source.from_text(script, tmp_path / "train.py"))
    assert "device = accelerator.device" in found.new_text
    messages = [f.message for f in found.remaining if f.code == "ACC410"]
    assert ["`options['device']` no longer chooses" in message for message in messages] == [True] * said
