"""A conversion made by hand, so that the reports are tested apart from the converter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from accelify.findings import Finding, Safety, Severity
from accelify.source import Source


@dataclass
class MadeConversion:
    """What the reports read of `accelify.conversion.Conversion`."""

    source: Source
    new_text: str
    status: str = "converted"
    reason: str = ""
    applied: list[Finding] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return self.new_text != self.source.text

    @property
    def left(self) -> list[Finding]:
        return [one for one in self.remaining if one.severity is not Severity.INFO]

    @property
    def infos(self) -> list[Finding]:
        return [one for one in self.remaining if one.severity is Severity.INFO]

    def edited(self) -> list[tuple[Finding, int]]:
        return []


OLD = """\
import torch
# <b>first</b>
model = Net().to(device)
steps = len(loader)
a = 1
b = 2
c = 3
d = 4
e = 5
f = 6
g = 7
h = 8
loss.backward()
print(loss)"""

NEW = OLD.replace("import torch\n", "import torch\nfrom accelify.runtime import Accelerator\n")
NEW = NEW.replace("Net().to(device)", "Net()").replace("loss.backward()", "accelerator.backward(loss)")


def finding(line: int, code: str, **values: object) -> Finding:
    """A finding of train.py at `line`."""
    return Finding(path="train.py", line=line, column=1, code=code, name=code.lower(), **values)  # type: ignore[arg-type]


@pytest.fixture
def converted() -> MadeConversion:
    """Three edits of 2, 3 and 5 minutes, and a place of 10 minutes left."""
    return MadeConversion(
        Source.from_text(OLD, Path("train.py")),
        NEW,
        applied=[
            finding(1, "ACC001", message="needs an Accelerator", effort=2),
            finding(
                3, "ACC010", message="prepare places <it>", effort=3, evidence=("`Net` is an nn.Module",)
            ),
            finding(13, "ACC020", message="gradients are averaged", effort=5, safety=Safety.REVIEW),
        ],
        remaining=[
            finding(
                4,
                "ACC120",
                message="the length is N times too long",
                effort=10,
                severity=Severity.WARNING,
                safety=Safety.MANUAL,
                fixable=False,
            )
        ],
    )


@pytest.fixture
def informed(converted: MadeConversion) -> MadeConversion:
    """The same edits, and nothing left but a note that needs no change."""
    converted.remaining = [
        finding(
            6, "ACC402", message="every process evaluates all of it", effort=10,
            severity=Severity.INFO, safety=Safety.MANUAL, fixable=False,
        )
    ]  # fmt: skip
    return converted


@pytest.fixture
def refused() -> MadeConversion:
    """A script that was left alone."""
    return MadeConversion(
        Source.from_text("x = 1\n", Path("other.py")), "x = 1\n", "refused", "It uses Lightning."
    )
