"""The picture of the losses: every curve that a run is compared with is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelify.convert import convert_source
from accelify.source import Source
from accelify.verify.plot import plot
from accelify.verify.session import Report

from . import scripts

pytestmark = pytest.mark.distributed


def test_the_original_on_larger_batches_is_drawn(
    verify_pair: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    labels: list[str] = []

    def note(figure: Figure, *_: Any) -> None:
        labels.extend(figure.axes[0].get_legend_handles_labels()[1])

    monkeypatch.setattr(Figure, "savefig", note)
    text = scripts.plain()
    converted = convert_source(Source.from_text(text, Path("train.py"))).new_text
    plot(verify_pair(text, converted, processes=(2,), steps=3), tmp_path / "losses.png")
    assert labels[0] == "original, 1 process"
    assert "original, on the batches of 2 processes" in labels
