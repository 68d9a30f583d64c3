"""Findings for GitHub and for code scanning."""

from __future__ import annotations

import json

from accelify.findings import Finding, Severity
from accelify.report.github import findings_github
from accelify.report.rdjson import findings_rdjson
from accelify.report.sarif import findings_sarif

FINDINGS = [
    Finding("src/a b.py", 3, 5, "ACC101", "device-move", "100% wrong,\nsee: x", end_line=3, end_column=9),
    Finding(
        "/abs/t.py", 7, 1, "ACC120", "length", "too long", end_line=9, end_column=2, severity=Severity.ERROR
    ),
]


def test_github() -> None:
    assert findings_github(FINDINGS).splitlines() == [
        "::warning file=src/a b.py,line=3,endLine=3,col=5,title=ACC101 device-move,endColumn=9::100%25 wrong,%0Asee: x",
        "::error file=/abs/t.py,line=7,endLine=9,col=1,title=ACC120 length::too long",
    ]


def test_sarif() -> None:
    log = json.loads(findings_sarif(FINDINGS))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["ACC120", "ACC101"]
    first, second = run["results"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "ACC101"
    assert (first["level"], second["level"]) == ("warning", "error")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/a%20b.py"
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 9}
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///abs/t.py"


def test_rdjson() -> None:
    found = json.loads(findings_rdjson(FINDINGS))
    first, second = found["diagnostics"]
    assert found["source"] == {"name": "accelify"}
    assert (first["severity"], second["severity"]) == ("WARNING", "ERROR")
    assert first["code"] == {"value": "ACC101"}
    where = {"start": {"line": 3, "column": 5}, "end": {"line": 3, "column": 9}}
    assert first["location"] == {"path": "src/a b.py", "range": where}
