"""`accelify rule`: every rule has a page, and the pages in docs/ are the ones that the rules give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from accelify.obsolete_codes import REPLACED
from accelify.rule_codes import NAMES, PUBLIC
from accelify.rules import all_rules, parts, rule_page, rules_index
from tests.cli.conftest import PLAIN, Run

DOCS = Path(__file__).parents[2] / "docs" / "rules"


def test_list(run: Run) -> None:
    outcome = run("rule")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == list(all_rules())


@pytest.mark.parametrize("code", all_rules())
def test_every_rule_has_a_page(run: Run, code: str) -> None:
    page = run("rule", code.lower()).out
    rule = all_rules()[code].rule
    assert page.startswith(f"# {code}: {rule.name}\n\n{rule.summary}\n\n## What it does\n\n")
    for chapter in ("What one sees", "Fix", "Way out", "Safety"):
        assert page.split(f"\n\n## {chapter}\n\n")[1].split("\n\n##")[0].strip()
    assert re.fullmatch(r"ACC\d{3}", code)
    assert rule.summary.endswith(".")


def test_a_code_without_its_letters_is_named(run: Run) -> None:
    outcome = run("rule", "702")
    assert (outcome.code, outcome.err) == (2, "accelify: there is no rule 702: its code is ACC702.\n")


def test_json(run: Run) -> None:
    (entry,) = json.loads(run("rule", "ACC712", "--json").out)
    assert entry["code"] == "ACC712"
    assert {"name", "summary", "severity", "safety", "effort", "text"} <= set(entry)


def test_an_older_code_shows_the_rule_it_is_a_part_of(run: Run) -> None:
    assert run("rule", "ACC201").out == run("rule", "ACC702").out
    assert "| ACC201 | " in run("rule", "ACC201").out


def test_no_page_says_what_another_one_says() -> None:
    pages = [entry.text for entry in all_rules().values()]
    paragraphs = [
        one
        for page in pages
        for one in set(page.split("\n\n"))
        if len(one) > 80 and not one.startswith(("**", "#", "```"))
    ]
    assert len(paragraphs) == len(set(paragraphs))


def test_unknown_rule(run: Run) -> None:
    outcome = run("rule", "ACC999")
    assert outcome.code == 2
    assert outcome.err == "accelify: there is no rule ACC999: `accelify rule` lists them.\n"


def test_rule_that_is_no_more(run: Run) -> None:
    outcome = run("rule", "ACC425")
    assert outcome.code == 2
    assert outcome.err == "accelify: there is no rule ACC425: ACC705 says it now.\n"


def test_pages_in_docs_are_up_to_date(run: Run, tmp_path: Path) -> None:
    assert run("rule", "--write", tmp_path / "rules").code == 0
    new = {path.name: path.read_text() for path in (tmp_path / "rules").iterdir()}
    assert new == {path.name: path.read_text() for path in DOCS.iterdir()}, "accelify rule --write docs/rules"
    assert new["README.md"] == rules_index()
    assert new["ACC712.md"] == rule_page(all_rules()["ACC712"])


def test_findings_have_codes_of_known_rules(run: Run) -> None:
    findings = json.loads(run("check", "-", "--output-format", "json", stdin=PLAIN.encode()).out)
    for finding in findings:
        assert all_rules()[finding["code"]].rule.name == finding["name"]


def test_every_code_in_the_package_has_a_page() -> None:
    package = DOCS.parents[1] / "accelify"
    codes = {code for path in package.rglob("*.py") for code in re.findall(r'"(ACC\d{3})"', path.read_text())}
    # These two say that there is nothing to do, and are never shown as findings.
    none = {"ACC000", "ACC002"} | REPLACED.keys()
    assert codes - none <= PUBLIC.keys()
    assert parts().keys() <= PUBLIC.keys()
    assert all_rules().keys() == NAMES.keys()
    assert len(NAMES) < 40
