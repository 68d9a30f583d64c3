"""Findings as workflow commands: GitHub shows them at their lines in a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.findings import Finding, Severity

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def findings_github(findings: Sequence[Finding]) -> str:
    """One `::warning file=...::message` for each finding."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    end_line = finding.end_line or finding.line
    values = {
        "file": finding.path,
        "line": finding.line,
        "endLine": end_line,
        "col": finding.column,
        "title": f"{finding.code} {finding.name}",
    }
    # GitHub takes an end column on a single line only.
    if end_line == finding.line and finding.end_column:
        values["endColumn"] = finding.end_column
    properties = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in values.items())
    # The lines of a notebook's file are not those of its cells.
    where = f"cell {finding.cell}, line {finding.line}: " if finding.cell else ""
    return f"::{_LEVELS[finding.severity]} {properties}::{_escaped(where + finding.message)}"


def _escaped(text: str, further: str = "") -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{further}" else letter for letter in text)
