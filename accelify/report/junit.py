"""Findings as JUnit's XML, which most CI services show as failed tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from accelify.findings import Finding, Severity

# What XML 1.0 cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def findings_junit(findings: Sequence[Finding]) -> str:
    """One test suite for each file, with a failed test for each finding; without any, one test that passed."""
    root = ElementTree.Element("testsuites", name="accelify")
    files: dict[str, list[Finding]] = {}
    for finding in findings:
        files.setdefault(finding.path, []).append(finding)
    for path, found in files.items():
        suite = _suite(root, path, len(found), sum(one.severity is not Severity.INFO for one in found))
        for one in found:
            case = ElementTree.SubElement(
                suite, "testcase", name=_plain(f"{one.code} {one.place}"), classname=_plain(path), time="0"
            )
            if one.severity is not Severity.INFO:
                failure = ElementTree.SubElement(
                    case, "failure", message=_plain(one.message), type=str(one.severity)
                )
                failure.text = _plain(f"{one.place}: {one.code} {one.name}: {one.message}")
    if not findings:
        suite = _suite(root, "accelify", 1, 0)
        ElementTree.SubElement(suite, "testcase", name="no findings", classname="accelify", time="0")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _suite(root: ElementTree.Element, name: str, tests: int, failures: int) -> ElementTree.Element:
    return ElementTree.SubElement(
        root,
        "testsuite",
        name=_plain(name),
        tests=str(tests),
        failures=str(failures),
        errors="0",
        skipped="0",
        time="0",
    )


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
