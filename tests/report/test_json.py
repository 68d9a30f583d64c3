"""The reports for programs."""

from __future__ import annotations

import json

import accelify
from accelify.report.json import conversions_json, findings_json
from tests.report.conftest import MadeConversion


def test_conversions(converted: MadeConversion, refused: MadeConversion) -> None:
    report = json.loads(conversions_json([converted, refused]))
    assert report["version"] == accelify.__version__
    assert report["summary"] == {
        "scripts": 2,
        "converted": 1,
        "edits": 3,
        "remaining": 1,
        "remaining_effort": 10,
        "infos": 0,
        "share_converted": 0.5,
    }
    first, second = report["files"]
    assert [edit["code"] for edit in first["applied"]] == ["ACC001", "ACC010", "ACC020"]
    assert first["applied"][1]["evidence"] == ["`Net` is an nn.Module"]
    assert first["remaining"][0]["safety"] == "manual"
    assert (second["status"], second["reason"], second["changed"]) == ("refused", "It uses Lightning.", False)
    assert "text" not in first


def test_what_needs_no_change_is_counted_apart(informed: MadeConversion) -> None:
    totals = json.loads(conversions_json([informed]))["summary"]
    assert (totals["remaining"], totals["remaining_effort"], totals["infos"]) == (0, 0, 1)
    assert totals["share_converted"] == 1


def test_text_on_request(converted: MadeConversion) -> None:
    (file,) = json.loads(conversions_json([converted], with_text=True))["files"]
    assert file["text"] == converted.new_text


def test_findings(converted: MadeConversion) -> None:
    (left,) = json.loads(findings_json(converted.remaining))
    assert left == {
        "code": "ACC120",
        "name": "acc120",
        "message": "the length is N times too long",
        "severity": "warning",
        "safety": "manual",
        "effort": 10,
        "fixable": False,
        "fix": None,
        "file": "train.py",
        "line": 4,
        "column": 1,
        "end": {"line": 4, "column": 1},
        "evidence": [],
    }
