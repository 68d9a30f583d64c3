"""Findings as a report of GitLab's Code Quality."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from accelify.findings import Finding, Severity
from accelify.fingerprints import fingerprints

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def findings_gitlab(findings: Sequence[Finding], line_of: Callable[[Finding], str]) -> str:
    """A list of problems, each with a fingerprint that stays as the lines around it change."""
    rows = [
        {
            "description": f"{finding.code} {finding.message}",
            "check_name": finding.name,
            "fingerprint": mark,
            "severity": _SEVERITIES[finding.severity],
            "location": {
                "path": finding.path,
                "lines": {"begin": finding.line, "end": finding.end_line or finding.line},
            },
        }
        for finding, mark in zip(findings, fingerprints(findings, line_of), strict=True)
    ]
    return json.dumps(rows, indent=2) + "\n"
