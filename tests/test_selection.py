"""Which findings are shown: codes, pyproject.toml, comments."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelify.findings import Finding
from accelify.obsolete_codes import REPLACED
from accelify.selection import Selection, codes_of, selection_for, shown
from accelify.source import Source, SourceError


def finding(line: int, code: str = "ACC101", end_line: int = 0, path: str = "src/train.py") -> Finding:
    return Finding(path, line, 1, code, "name", "message", end_line=end_line)


@pytest.mark.parametrize(
    ("select", "ignore", "code", "shows"),
    [
        (("ALL",), (), "ACC101", True),
        (("ALL",), ("ACC101",), "ACC101", False),
        (("ALL",), ("ACC1",), "ACC201", True),
        (("ACC1",), (), "ACC201", False),
        (("ACC101",), ("ACC1",), "ACC101", True),
        (("ACC1",), ("ACC101",), "ACC101", False),
        (("ACC1",), ("ACC1",), "ACC101", False),
        (("ACC1",), ("ALL",), "ACC101", True),
        ((), (), "ACC101", False),
    ],
)
def test_the_closer_code_wins(
    select: tuple[str, ...], ignore: tuple[str, ...], code: str, shows: bool
) -> None:
    assert Selection(select, ignore).shows(finding(1, code)) is shows


@pytest.mark.parametrize("pattern", ["train.py", "src/*.py", "*/train.py", "*.py"])
def test_per_file_ignores(pattern: str) -> None:
    selection = Selection(per_file=((pattern, ("ACC1",)),))
    assert not selection.shows(finding(1))
    assert selection.shows(finding(1, "ACC201"))
    assert selection.shows(finding(1, path="src/other.txt"))


def test_codes_are_checked() -> None:
    assert codes_of(["ACC101, ACC2", "ALL"], "--select") == ("ACC101", "ACC2", "ALL")
    with pytest.raises(SourceError, match="--select: 'E501' is no rule"):
        codes_of(["E501"], "--select")


SCRIPT = """\
a = 1
b = 2  # accelify: ignore
c = 3  # why not  # accelify: ignore[ACC106, ACC2]
d = (
    4
)  # accelify: ignore[ACC101]
e = "# accelify: ignore"
"""


def left(lines: list[tuple[int, str, int]], text: str = SCRIPT) -> list[int]:
    findings = [finding(line, code, end) for line, code, end in lines]
    return [one.line for one in shown(findings, Source.from_text(text), Selection())]


def test_comments_take_out_what_they_name() -> None:
    assert left([(1, "ACC101", 0), (2, "ACC101", 0)]) == [1]
    assert left([(3, "ACC101", 0), (3, "ACC106", 0), (3, "ACC201", 0)]) == [3]
    assert left([(4, "ACC101", 6), (4, "ACC106", 6)]) == [4]
    assert left([(7, "ACC101", 0)]) == [7]


def test_an_older_code_selects_what_it_selected() -> None:
    text = "a = 1  # accelify: ignore[ACC201]\n"
    assert left([(1, "ACC201", 0)], text) == []
    assert left([(1, "ACC203", 0)], text) == [1]
    assert left([(1, "ACC203", 0)], text.replace("ACC201", "ACC702")) == []
    assert Selection(ignore=("ACC702",)).shows(finding(1, "ACC203")) is False
    assert Selection(("ACC2",)).shows(finding(1, "ACC203"))
    assert Selection(("ACC702",)).shows(finding(1, "ACC203"))


def test_a_code_that_is_no_more_stands_for_the_later_one() -> None:
    text = "a = 1  # accelify: ignore[ACC425]\n"
    assert left([(1, REPLACED["ACC425"], 0)], text) == []
    assert left([(1, "ACC101", 0)], text) == [1]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_comments_count_with_every_line_end(newline: str) -> None:
    assert left([(1, "ACC101", 0), (2, "ACC101", 0)], SCRIPT.replace("\n", newline)) == [1]


def test_a_whole_file_is_taken_out() -> None:
    assert left([(1, "ACC101", 0)], "a = 1\n# accelify: ignore-file\n") == []
    assert left([(1, "ACC101", 0)], "a = 1\nb = '# accelify: ignore-file'\n") == [1]


def configured(tmp_path: Path, text: str) -> Selection:
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "pyproject.toml").write_text(text)
    return selection_for(tmp_path / "src" / "train.py", [], [])


def test_pyproject(tmp_path: Path) -> None:
    section = '[tool.accelify]\nselect = ["ACC1"]\nextend-select = ["ACC203"]\nignore = ["ACC102"]\n'
    section += '[tool.accelify.per-file-ignores]\n"old/*" = ["ALL"]\n'
    assert configured(tmp_path, section) == Selection(("ACC1", "ACC203"), ("ACC102",), (("old/*", ("ALL",)),))
    path = tmp_path / "src" / "train.py"
    assert selection_for(path, ["ACC3"], ["ACC301"]).select == ("ACC3",)
    assert selection_for(path, ["ACC3"], ["ACC301"]).ignore == ("ACC102", "ACC301")


def test_pyproject_without_a_section_is_none(tmp_path: Path) -> None:
    assert configured(tmp_path, "[tool.other]\nx = 1\n") == Selection()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.accelify\n", "cannot be read"),
        ("[tool.accelify]\nselct = []\n", "has no 'selct'"),
        ('[tool.accelify]\nselect = "ACC1"\n', "is a list of codes"),
        ('[tool.accelify]\nignore = ["E501"]\n', "'E501' is no rule"),
        ('[tool.accelify]\nper-file-ignores = ["ACC1"]\n', "is a table"),
        # All that is wrong at once.
        (
            '[tool.accelify]\nselct = 1\nselect = ["E5", "F1"]\nignore = 1\n',
            r"(?s)'selct'.*'E5', 'F1' are.*ignore of",
        ),
    ],
)
def test_bad_pyproject_gets_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        configured(tmp_path, text)
