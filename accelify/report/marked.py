"""Findings with the lines that they stand at, and a mark below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accelify.findings import Finding
from accelify.report.style import styled, wrapped
from accelify.report.text import finding_line, findings_total

_LONGEST = 100


def findings_marked(
    findings: Sequence[Finding],
    line_of: Callable[[Finding], str],
    *,
    colour: bool = False,
    total: bool = True,
    width: int = 0,
) -> str:
    """Each finding with its line of code and a mark below, and a last line with the counts; empty for no finding.

    Args:
        findings: in the order in which they are shown.
        line_of: gives the line of code that a finding begins in; empty where there is none.
        colour: for a terminal.
        total: whether the counts follow.
        width: of the terminal, which no line is to be longer than; 0: of none.
    """
    if not findings:
        return ""
    parts = [
        wrapped(finding_line(finding, colour), width) + _mark(finding, line_of(finding), colour, width)
        for finding in findings
    ]
    return "\n".join([*parts, *([wrapped(findings_total(findings, colour), width)] if total else [])]) + "\n"


def _mark(finding: Finding, line: str, colour: bool, terminal: int) -> str:
    code = line.rstrip().replace("\t", " ")
    if not code.strip():
        return ""
    indented = len(code) - len(code.lstrip())
    start = max(min(finding.column, len(code)) - 1, indented)
    ends_here = finding.end_line in (0, finding.line) and finding.end_column > finding.column
    width = (finding.end_column if ends_here else finding.column + 1) - finding.column
    number = str(finding.line)
    # What stands ahead of the code: two spaces, the line's number and a bar.
    longest = min(_LONGEST, max(terminal - len(number) - 5, 20)) if terminal else _LONGEST
    # A long line is shown from where it is marked.
    cut = max(start - longest // 2, 0) if len(code) > longest else 0
    shown = code[cut : cut + longest]
    width = max(min(width, len(shown) - (start - cut)), 1)
    bar = styled("|", "dim", colour)
    below = styled("^" * width, "red", colour)
    return f"\n  {number} {bar} {shown}\n  {' ' * len(number)} {bar} {' ' * (start - cut)}{below}"
