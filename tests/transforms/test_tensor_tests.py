"""Helpers that ask whether they are given a tensor: behind the question an array is an array, which has no cpu()."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from tests.transforms.support import codes, convert

IMPORTS = "import numpy as np\nfrom elsewhere import to_array"
DEVICE = "device = 'cuda'"
BUILD = "model = nn.Linear(4, 2).to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
MOVED = "kept = x\nx, y = x.to(device), y.to(device)"


def shown(body: str) -> Conversion:
    """The script with a helper that is given the batch as the loader gives it."""
    lines = body.replace("\n", "\n    ")
    setup = f"{DEVICE}\ndef show(x):\n    {lines}\n"
    return convert(imports=IMPORTS, setup=setup, build=BUILD, batch=MOVED, update="show(kept)")


@pytest.mark.parametrize(
    "body",
    [
        "if isinstance(x, torch.Tensor):\n    x = to_array(x)\nreturn np.transpose(x)",
        "with torch.no_grad():\n    if torch.is_tensor(x):\n        x = to_array(x)\nreturn np.transpose(x)",
        "if isinstance(x, np.ndarray):\n    pass\nelse:\n    x = to_array(x)\nreturn np.transpose(x)",
        "if not isinstance(x, (torch.Tensor, list)):\n    return np.asarray(x)\nreturn to_array(x)",
        "return to_array(x) if isinstance(x, torch.Tensor) else np.asarray(x)",
    ],
)
def test_what_is_an_array_behind_a_question_is_not_copied(body: str) -> None:
    assert "ACC114" not in codes(shown(body))


@pytest.mark.parametrize(
    "body",
    [
        "if isinstance(x, torch.Tensor):\n    x = x.detach()\nreturn np.transpose(x)",
        "if isinstance(x, torch.Tensor):\n    print(x.shape)\nreturn np.transpose(x)",
        "if isinstance(x, list):\n    x = to_array(x)\nreturn np.transpose(x)",
        "if not torch.is_tensor(x):\n    x = torch.tensor(x)\n    x = x.to('cuda')\nreturn np.transpose(x)",
    ],
)
def test_what_stays_a_tensor_is_copied(body: str) -> None:
    assert "np.transpose(x.cpu())" in shown(body).new_text
