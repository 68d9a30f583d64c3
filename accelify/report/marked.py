"""Findings with the lines that they stand at, and a mark below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accelify.findings import Finding
from accelify.report.style import styled
from accelify.report.text import finding_line, findings_total

_LONGEST = 100


def findings_marked(
    findings: Sequence[Finding],
    line_of: Callable[[Finding], str],
    *,
    colour: bool = False,
    total: bool = True,
) -> str:
    """Each finding with its line of code and a mark below, and a last line with the counts; empty for no finding.

    Args:
        findings: in the order in which they are shown.
        line_of: gives the line of code that a finding begins in; empty where there is none.
        colour: for a terminal.
        total: whether the counts follow.
    """
    if not findings:
        return ""
    parts = [finding_line(finding, colour) + _mark(finding, line_of(finding), colour) for finding in findings]
    return "\n".join([*parts, *([findings_total(findings, colour)] if total else [])]) + "\n"


def _mark(finding: Finding, line: str, colour: bool) -> str:
    code = line.rstrip().replace("\t", " ")
    if not code.strip():
        return ""
    indented = len(code) - len(code.lstrip())
    start = max(min(finding.column, len(code)) - 1, indented)
    ends_here = finding.end_line in (0, finding.line) and finding.end_column > finding.column
    width = (finding.end_column if ends_here else finding.column + 1) - finding.column
    # A long line is shown from where it is marked.
    cut = max(start - _LONGEST // 2, 0) if len(code) > _LONGEST else 0
    shown = code[cut : cut + _LONGEST]
    width = max(min(width, len(shown) - (start - cut)), 1)
    number = str(finding.line)
    bar = styled("|", "dim", colour)
    below = styled("^" * width, "red", colour)
    return f"\n  {number} {bar} {shown}\n  {' ' * len(number)} {bar} {' ' * (start - cut)}{below}"
