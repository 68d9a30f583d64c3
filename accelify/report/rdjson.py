"""Findings for reviewdog: its Diagnostic Format as JSON (rdjson), which comments on pull requests of many hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from accelify.findings import Finding, Severity

_SEVERITIES = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}


def findings_rdjson(findings: Sequence[Finding]) -> str:
    """One object with all findings; columns count from 1."""
    rows = [
        {
            "message": finding.message,
            "location": {"path": finding.path, "range": _range(finding)},
            "severity": _SEVERITIES[finding.severity],
            "code": {"value": finding.code},
        }
        for finding in findings
    ]
    return json.dumps({"source": {"name": "accelify"}, "diagnostics": rows}, indent=2) + "\n"


def _range(finding: Finding) -> dict[str, Any]:
    start = {"line": finding.line, "column": finding.column}
    if not finding.end_line:
        return {"start": start}
    return {"start": start, "end": {"line": finding.end_line, "column": finding.end_column}}
