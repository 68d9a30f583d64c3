"""What a finding is recognised by when the lines above it have changed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from accelify.findings import Finding


def fingerprints(
    findings: Sequence[Finding], line_of: Callable[[Finding], str], folder: Path | None = None
) -> list[str]:
    """One for each finding, each another one: of its rule, its file, and the text of its line without spaces.

    Args:
        findings: in the order of their places.
        line_of: gives the line of code that a finding begins in.
        folder: that paths are written relative to; default: as they are.
    """
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        path = Path(finding.path)
        if folder is not None and path.resolve().is_relative_to(folder):
            path = path.resolve().relative_to(folder)
        what = "\0".join((finding.part or finding.code, path.as_posix(), "".join(line_of(finding).split())))
        seen[what] += 1
        found.append(hashlib.sha256(f"{what}\0{seen[what]}".encode()).hexdigest()[:32])
    return found
