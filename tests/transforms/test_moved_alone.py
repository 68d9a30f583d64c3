"""ACC206 and ACC210: what one process alone hands to a function that moves the model is a copy of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from tests.transforms.support import frame

HELPERS = """
import torch
class Saver:
    def __init__(self, path):
        self.path = path
    def save(self, step, net, device):
        {move}
        torch.save(state, self.path)
        net.to(device)
def keep(net):
    Saver("kept.pt").save(0, net, "cuda")
"""


def _converted(tmp_path: Path, move: str, call: str, imports: str = "") -> str:
    (tmp_path / "helpers.py").write_text(HELPERS.format(move=move))
    script = frame(
        imports=f"from helpers import Saver, keep\n{imports}",
        ready="device = torch.device('cuda')\nmodel.to(device)\nsaver = Saver('net.pt')\n",
        epoch=f"{call}\n",
    )
    return convert_source(Source.from_text(script, tmp_path / "train.py")).new_text


@pytest.mark.parametrize(
    ("move", "copied"),
    [
        ("state = net.cpu().state_dict()", True),
        ("net.to('cpu')\n        state = net.state_dict()", True),
        ("net.to(torch.device('cpu'))\n        state = net.state_dict()", True),
        ("state = net.half().state_dict()", True),
        ("state = net.state_dict()", False),
        ("state = {k: w.cpu() for k, w in net.state_dict().items()}", False),
    ],
)
@pytest.mark.parametrize(
    "call", ["saver.save(1, {}, device)", "saver.save(1, net={}, device=device)", "keep({})"]
)
def test_the_model_of_one_process_stays_where_it_is(
    tmp_path: Path, move: str, copied: bool, call: str
) -> None:
    text = _converted(tmp_path, move, call.format("model"))
    bare = "accelerator.unwrap_model(model)"
    assert call.format(f"copy.deepcopy({bare})" if copied else bare) in text
    assert ("import copy" in text) is copied


def test_copy_is_imported_once(tmp_path: Path) -> None:
    text = _converted(tmp_path, "state = net.cpu().state_dict()", "keep(model)", "import copy")
    assert text.count("import copy") == 1
