"""CUDA_VISIBLE_DEVICES that is set when the Accelerator is made already."""

from __future__ import annotations

import pytest

from accelify.convert import Conversion
from tests.transforms.support import convert

HIDE = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
HIDING = f"def hide():\n    {HIDE}\n"
LATE, SHARED = "this has no effect behind the Accelerator", "all processes share the GPUs named here"


def said(found: Conversion) -> bool:
    (message,) = [f.message for f in found.remaining if f.code == "ACC113"]
    late = "behind the Accelerator" in message
    assert (LATE in found.new_text) == late
    assert (SHARED in found.new_text) != late
    return late


@pytest.mark.parametrize("place", ["epoch", "end"])
def test_set_further_down(place: str) -> None:
    assert said(convert(**{place: HIDE}, build="model = nn.Linear(4, 2).cuda()\n" + SGD))


def test_set_by_a_function() -> None:
    model = f"model = nn.Linear(4, 2).cuda()\n{SGD}"
    assert said(convert(setup=HIDING, build=model, end="hide()"))
    assert not said(convert(setup=HIDING, build=model))


def test_set_first() -> None:
    assert not said(convert(setup=HIDE))
