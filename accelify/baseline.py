"""The findings that a project has accepted: `check --baseline` shows only those that came later."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from accelify.findings import Finding
from accelify.fingerprints import fingerprints
from accelify.source import SourceError

_VERSION = 1


def write_baseline(file: Path, findings: Sequence[Finding], line_of: Callable[[Finding], str]) -> None:
    """Accept findings: they are written to a file, by rule, path and text of their line.

    Raises:
        SourceError: the file cannot be written.
    """
    marks = fingerprints(findings, line_of, file.resolve().parent)
    rows = [
        {"fingerprint": mark, "code": finding.code, "place": finding.place}
        for mark, finding in zip(marks, findings, strict=True)
    ]
    try:
        file.write_text(
            json.dumps({"version": _VERSION, "findings": rows}, indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise SourceError(f"{file} cannot be written: {error.strerror or error}.", file) from None


def later_than(file: Path, findings: Sequence[Finding], line_of: Callable[[Finding], str]) -> list[Finding]:
    """The findings that are not accepted in a baseline.

    Raises:
        SourceError: it cannot be read, or is none.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        accepted = {row["fingerprint"] for row in found["findings"]}
    except OSError as error:
        raise SourceError(
            f"the baseline {file} cannot be read ({error.strerror or error}): --update-baseline makes it.",
            file,
        ) from None
    except (ValueError, TypeError, KeyError):
        raise SourceError(
            f"{file} is no baseline of `accelify check`: --update-baseline makes one.", file
        ) from None
    marks = fingerprints(findings, line_of, file.resolve().parent)
    return [one for one, mark in zip(findings, marks, strict=True) if mark not in accepted]
