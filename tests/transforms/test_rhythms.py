"""Rhythms made of a loader's length by whole division."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.convert import convert_project
from accelify.source import Source
from tests.transforms.support import check_noop, check_transformed, codes, frame

SHOW = "if (i + 1) % every == 0:\n    count = i"


@pytest.mark.parametrize(
    ("number", "bound"),
    [
        ("len(loader) // 10", "max(len(loader) // 10, 1)"),
        ("int(0.1 * len(loader))", "max(int(0.1 * len(loader)), 1)"),
        ("int(len(loader) / parts)", "max(int(len(loader) / parts), 1)"),
        ("size // 10", "max(size // 10, 1)"),
    ],
)
def test_a_rhythm_does_not_come_to_zero(number: str, bound: str) -> None:
    before, after = (f"size = len(loader)\nevery = {n}" for n in (number, bound))
    conversion = check_transformed("ready", before, after, setup="parts = 10", batch=SHOW)
    assert "ACC401" in codes(conversion)


def test_a_rhythm_that_is_written_where_it_divides() -> None:
    before, after = "if i % (len(loader) // 10) == 0:", "if i % (max(len(loader) // 10, 1)) == 0:"
    check_transformed("batch", f"{before}\n    count = i", f"{after}\n    count = i")


@pytest.mark.parametrize(
    ("number", "batch"),
    [
        ("len(loader) // 10 + 1", SHOW),
        ("max(len(loader) // 10, 1)", SHOW),
        ("len(loader) // 10 or 1", SHOW),
        ("len(data) // 10", SHOW),
        ("80 // 10", SHOW),
        ("len(loader) // 10", "if every and i % every == 0:\n    count = i"),
        ("len(loader) // 10", "if every > 0 and i % every == 0:\n    count = i"),
        ("len(loader) // 10", "if i % max(every, 1) == 0:\n    count = i"),
        ("len(loader) // 10", "if i == every:\n    count = i"),
    ],
)
def test_what_cannot_be_zero_or_is_asked(number: str, batch: str) -> None:
    check_noop("ready", f"every = {number}", "ACC401", batch=batch)


def test_the_whole_batches_keep_their_number() -> None:
    check_noop("ready", "every = len(loader) // 10", "ACC401", batch=SHOW, batch_size="total")


@pytest.mark.parametrize(
    "text",
    [
        """
        class Trainer:
            def __init__(self, loader):
                self.loader, self.every = loader, 5
                self.every = {}
            def train(self):
                for i, (x, y) in enumerate(self.loader):
                    if i % self.every == 0:
                        count = i
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
        trainer = Trainer(loader)
        trainer.train()
        """,
        """
        def train(loader, every):
            for i, (x, y) in enumerate(loader):
                if i % every == 0:
                    count = i
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        train(loader, {})
        """,
    ],
)
def test_a_rhythm_that_is_kept_or_handed_on(tmp_path: Path, text: str) -> None:
    script = frame(ready=textwrap.dedent(text).format("len(loader) // 10"))
    (tmp_path / "train.py").write_text(script)
    (conversion,) = convert_project(Source.read(tmp_path / "train.py"))
    assert conversion.status == "converted", conversion.reason
    assert "max(len(loader) // 10, 1)" in conversion.new_text
