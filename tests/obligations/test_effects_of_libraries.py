"""What functions of libraries do by their arguments."""

from __future__ import annotations

import pytest

from accelify.knowledge import Knowledge
from accelify.obligations import Status, validate


@pytest.mark.parametrize(("verbose", "shown"), [("", 1), (", verbose=1", 1), (", verbose=0", 0)])
def test_a_summary_that_is_quiet_prints_nothing(verbose: str, shown: int) -> None:
    text = f"import torch, torchinfo\ntext = torchinfo.summary(torch.nn.Linear(2, 2), (4, 2){verbose})\n"
    found = validate(text, None, Knowledge())
    prints = [one for one in found.of(Status.NAMED) if "summary" in one.message]
    assert len(prints) == shown
