"""The page to look at: every edit is on it, explained, and nothing comes from elsewhere."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelify.convert import convert_source
from accelify.report.curves import Curves, curves_svg, read_curves
from accelify.report.html import html_report
from accelify.report.sides import Block, side_by_side
from accelify.report.verdicts import Verdicts, verdict_table
from accelify.source import Source, SourceError, split_lines
from tests.report.conftest import MadeConversion, finding

VOID = {"meta", "path", "br"}


class Checker(HTMLParser):
    """Collects the text and complains of tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def test_page_has_everything_a_person_wants_to_see(
    converted: MadeConversion, refused: MadeConversion
) -> None:
    page = html_report([converted, refused])
    text = parsed(page).text
    for wanted in (
        "50%",
        "1 of 2",
        "ACC010 acc010 · 1",
        "prepare places <it>",
        "Net is an nn.Module",
        "review",
        "the length is N times too long",
        "10 min",
        "It uses Lightning.",
        "# <b>first</b>",
        "from accelify.runtime import Accelerator",
    ):
        assert wanted in text, wanted


def test_page_needs_nothing_from_elsewhere(converted: MadeConversion) -> None:
    page = html_report([converted])
    checker = parsed(page)
    assert all(reference.startswith("#") for reference in checker.references)
    assert "http" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert 'name="viewport"' in page


def test_edits_of_a_rule_have_its_colour(converted: MadeConversion) -> None:
    page = html_report([converted])
    hues = set(re.findall(r'<button class="rule" style="--h:(\d+)"', page))
    assert len(hues) == 3
    assert set(re.findall(r'<div class="edit" data-rules="ACC\d+" style="--h:(\d+)"', page)) == hues


def test_an_edit_says_what_was_done_and_what_for(converted: MadeConversion) -> None:
    first, *others = converted.applied
    converted.applied = [replace(first, done="made an Accelerator"), *others]
    text = parsed(html_report([converted])).text
    assert f"{first.code} made an Accelerator · 1" in text
    assert f"made an Accelerator: {first.message}".replace("`", "") in text
    assert f"{others[0].code} {others[0].name} · " in text


def test_loss_curves_are_drawn(converted: MadeConversion) -> None:
    curves = Curves(
        "equal to rounding", (("original", (2.0, 1.0, float("nan"))), ("2 processes", (2.0, 1.0, 0.5)))
    )
    page = html_report([converted], curves={"train.py": curves})
    assert parsed(page).text.count("equal to rounding") == 1
    assert page.count("<svg") == 1
    assert "nan" not in curves_svg(curves)


def test_a_verification_converts_nothing(converted: MadeConversion) -> None:
    text = parsed(html_report([converted], verified="would be converted")).text
    assert "Verification report" in text
    assert "1 script would be converted" in text
    assert "files converted" not in text


def test_curves_without_a_finite_loss() -> None:
    assert "<svg" not in curves_svg(Curves("different", (("original", (float("inf"),)),)))


def test_curves_are_read_from_what_verify_prints(tmp_path: Path) -> None:
    file = tmp_path / "verified.json"
    run = {
        "run": "converted", "processes": 2, "on": "2 processes", "verdict": "equal to rounding", "losses": [2.0, None],
        "reference_losses": [2.0],
    }  # fmt: skip
    report = {
        "script": "train.py",
        "refused": None,
        "unchanged": None,
        "original": {"losses": [2.0, 1.0]},
        "runs": [run],
        "on_simulated_gpu": None,
        "columns": ["2 processes"],
        "table": [{"compared": "printed figures", "verdicts": ["different"]}],
        "sentences": ["2 processes: printed figures different, train.py line 7: printed <twice>"],
    }
    file.write_text(json.dumps(report))
    script, curves = read_curves(file)
    assert script == Path("train.py")
    assert curves.verdict == "equal to rounding (converted, 2 processes)"
    names = [name for name, _ in curves.runs]
    assert names == ["original", "original, 2 batches in one", "converted, 2 processes"]
    assert math.isnan(curves.runs[2][1][1])
    assert curves_svg(curves).count('<path d="M56.0') == len(names)
    table = verdict_table(curves.verdicts)
    assert "<td>printed figures</td>" in table
    assert "<li>2 processes: printed figures different, train.py line 7: printed &lt;twice&gt;</li>" in table
    assert verdict_table(Verdicts()) == ""
    file.write_text("[]")
    with pytest.raises(SourceError, match="is not what `accelify verify --json` prints"):
        read_curves(file)


def versions(blocks: list[Block]) -> tuple[list[str], list[str]]:
    old = [row.old for block in blocks for row in block.rows if row.old is not None]
    new = [row.new for block in blocks for row in block.rows if row.new is not None]
    for lines in (old, new):
        assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    return [line.text for line in old], [line.text for line in new]


def test_findings_stand_beside_their_edits(converted: MadeConversion) -> None:
    blocks = [block for block in side_by_side(converted) if block.changed]
    assert [[finding.code for finding in block.findings] for block in blocks] == [
        ["ACC001"],
        ["ACC010"],
        ["ACC020"],
    ]
    (row,) = blocks[1].rows
    assert row.old is not None
    assert row.old.changed is not None
    assert row.old.text[slice(*row.old.changed)] == ".to(device)"


script = st.lists(st.sampled_from(["a = 1", "b = 2", "", "    c(d)", "    c(e)"]), max_size=12).map("\n".join)


@settings(deadline=None)
@given(script, script, st.lists(st.integers(1, 20), max_size=4))
def test_both_versions_are_whole_and_every_finding_is_shown_once(
    old: str, new: str, lines: list[int]
) -> None:
    conversion = MadeConversion(Source.from_text(old), new)
    conversion.applied = [finding(line, f"ACC{number:03d}", message="x") for number, line in enumerate(lines)]
    blocks = side_by_side(conversion)
    shown_old, shown_new = versions(blocks)
    assert shown_old == [line.rstrip("\n") for line in split_lines(old)]
    assert shown_new == [line.rstrip("\n") for line in split_lines(new)]
    if any(block.changed for block in blocks):
        assert sorted(f.code for block in blocks for f in block.findings) == sorted(
            f.code for f in conversion.applied
        )
    parsed(html_report([conversion]))


def test_what_is_left_stands_at_its_line(converted: MadeConversion) -> None:
    page = html_report([converted])
    assert '<a href="#file0-4">' in page
    assert page.count('id="file0-4"') == 1
    assert page.index('id="file0-4"') < page.index('class="why todo"')


def test_what_needs_no_change_is_a_note(informed: MadeConversion) -> None:
    page = html_report([informed])
    text = parsed(page).text
    assert "100%" in text
    assert "To know" in text
    assert page.count("every process evaluates all of it") == 2  # in the list and at its line
    for wrong in ("manual", "1 place", "What to decide", "why todo"):
        assert wrong not in page.split("</style>")[1], wrong


def test_reasons_that_say_the_same_are_one_line(converted: MadeConversion) -> None:
    again = replace(converted.applied[2], column=9)
    page = html_report([replace(converted, applied=[*converted.applied, again])])
    assert page.count("gradients are averaged") == 1
    assert "(2 times)" in page


def test_the_rest_of_a_change_says_what_it_belongs_to() -> None:
    before = Path("fixtures/image_classification/before.py").read_text()
    conversion = convert_source(Source.from_text(before, Path("/nowhere/before.py")))
    gathered = next(f for f in conversion.applied if f.code == "ACC301")
    assert gathered.line not in {line for found, line in conversion.edited() if found == gathered}
    page = html_report([conversion])
    assert "Part of the other edits." not in page
    assert page.count("the metrics of this loop would cover") == 2


@pytest.mark.parametrize(("written", "words"), [(True, "converted"), (False, "would be converted")])
def test_a_page_beside_a_diff_does_not_say_that_the_script_was_written(
    converted: MadeConversion, written: bool, words: str
) -> None:
    text = parsed(html_report([converted], written=written)).text
    assert f"1 script {words}" in text
    assert ("files would be converted" in text) is not written
