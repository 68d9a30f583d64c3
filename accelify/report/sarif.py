"""Findings as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import accelify
from accelify.findings import Finding, Severity

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def findings_sarif(
    findings: Sequence[Finding], pages: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> str:
    """One SARIF log with one run; its rules are those that found something.

    Args:
        findings: with their places in the files.
        pages: by rule, what it says in one sentence, and its page in Markdown.
    """
    rules = {finding.code: finding.name for finding in sorted(findings)}
    codes = list(rules)
    driver = {
        "name": "accelify",
        "version": accelify.__version__,
        "rules": [_rule(code, name, pages.get(code)) for code, name in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str, name: str, page: tuple[str, str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": code,
        "name": name,
        "shortDescription": {"text": page[0] if page else name},
    }
    if page:
        found["help"] = {"text": page[1], "markdown": page[1]}
    return found


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line or finding.line,
    }
    if finding.end_column:
        region["endColumn"] = finding.end_column
    place = {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"cell {finding.cell}: {finding.message}" if finding.cell else finding.message},
        "locations": [{"physicalLocation": place}],
        "properties": {"safety": str(finding.safety), "effort": finding.effort, "fixable": finding.is_fixed},
    }


def _uri(path: str) -> str:
    file = Path(path)
    return file.as_uri() if file.is_absolute() else quote(file.as_posix())
