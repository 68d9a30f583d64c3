"""The documentation: what the site is made from, and that the schema of the settings is what their reader takes."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from accelify.cli.excluded import excluded_patterns
from accelify.configuration import nearest_section, user_rows
from accelify.rule_codes import NAMES, PUBLIC
from accelify.selection import _KEYS, selection_for
from accelify.source import SourceError

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "accelify" / "tool-schema.json").read_text())
GENERATED = re.compile(r"reference/(commands|configuration)\.md|reference/api/")


def test_the_schema_names_the_keys_that_are_read() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == set(_KEYS)
    for entry in SCHEMA["properties"].values():
        resolved = {**entry, "$defs": SCHEMA["$defs"]}
        for example in [*entry["examples"], entry["default"]]:
            jsonschema.validate(example, resolved)


@pytest.mark.parametrize(
    ("section", "right"),
    [
        ({"select": ["ACC1", "ACC203"], "ignore": ["ACC110"]}, True),
        ({"select": ["ACC1,ACC2"], "extend-select": ["ALL"]}, True),
        ({"per-file-ignores": {"old/*": ["ALL"]}, "exclude": ["third_party"]}, True),
        ({"only-distributed": True}, True),
        ({"only-distributed": "yes"}, False),
        ({"models": {"mylogger.log": "none effect=log.write content=*"}}, True),
        ({"ignroe": ["ACC110"]}, False),
        ({"select": "ACC110"}, False),
        ({"select": ["E501"]}, False),
        ({"ignore": [110]}, False),
        ({"per-file-ignores": ["ACC110"]}, False),
        ({"exclude": "third_party"}, False),
        ({"models": ["mylogger.log"]}, False),
    ],
)
def test_schema_and_reader_agree(section: dict[str, Any], right: bool, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.accelify]\n{_toml(section)}")
    nearest_section.cache_clear()
    script = tmp_path / "train.py"
    try:
        selection_for(script, [], [])
        excluded_patterns(tmp_path)
        user_rows(script)
        read = True
    except SourceError:
        read = False
    assert read is right
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(section) is right


def test_every_page_is_in_the_navigation_and_every_entry_exists() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    entries = set(re.findall(r": ([\w./-]+\.md)$", text, re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if not page.startswith("rules/ACC")}
    assert {entry for entry in entries if not GENERATED.match(entry)} == pages
    assert yaml.safe_load(text)["site_dir"] == "accelify/site"


def test_links_between_pages_lead_to_files() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text()):
            if link.startswith("http"):
                continue
            place = (page.parent / link).resolve()
            inside = (
                place.relative_to(ROOT / "docs").as_posix() if place.is_relative_to(ROOT / "docs") else ""
            )
            assert place.exists() or GENERATED.match(inside), f"{page.relative_to(ROOT)}: {link}"


def test_the_search_asks_no_other_host() -> None:
    """The plugin "offline" fetches a script from another host, unless one is listed that has its name."""
    scripts = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["extra"]["polyfills"]
    assert any("iframe-worker" in script for script in scripts)
    assert all((ROOT / "docs" / script).is_file() for script in scripts)


@pytest.mark.parametrize(
    ("page", "refused"),
    [
        ('<script src="https://host/shim">', True),
        ("<link rel=stylesheet href='//host/a.css'>", True),
        ('<img alt="" src=http://host/a.png>', True),
        ("<style>p { background: url(https://host/a.png) }</style>", True),
        ('<a href="https://host/"><img src="a.png"></a>', False),
        ('<svg xmlns="http://www.w3.org/2000/svg">', False),
    ],
)
def test_a_page_that_loads_something_from_another_host_is_not_built(page: str, refused: bool) -> None:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec
    assert spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert bool(hook.LOADED_FROM_ELSEWHERE.search(page)) is refused


def _toml(section: dict[str, Any]) -> str:
    lines = []
    for key, value in section.items():
        if isinstance(value, dict):
            rows = ", ".join(f"{json.dumps(name)} = {json.dumps(row)}" for name, row in value.items())
            lines.append(f"{key} = {{ {rows} }}")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)


def _pages_of_people() -> list[Path]:
    """The pages that no command writes."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *(page for page in docs.rglob("*.md") if page.parent != docs / "rules")]


@pytest.mark.parametrize("page", _pages_of_people(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_codes_are_those_of_rules_or_called_aliases(page: Path) -> None:
    for paragraph in page.read_text().split("\n\n"):
        others = {*re.findall(r"\bACC\d{3}\b", paragraph)} - NAMES.keys()
        assert not others or (others <= PUBLIC.keys() and "alias" in paragraph), (page, others)
