"""The summary that convert prints and the list that check prints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from accelify.convert import convert_source
from accelify.findings import Safety
from accelify.report.marked import findings_marked
from accelify.report.style import duration
from accelify.report.text import findings_list, left_over, summary
from accelify.rules import parts
from accelify.source import Source
from tests.report.conftest import MadeConversion, finding


def test_summary_says_what_was_done_and_what_is_left(
    converted: MadeConversion, refused: MadeConversion
) -> None:
    converted.applied[:2] = [finding(line, "ACC001", message="x", done="made it") for line in (1, 3)]
    assert summary([converted, refused]) == (
        "train.py: converted, 3 edits\n"
        "  made it (lines 1, 3) ACC001\n"
        "  acc020 (line 13) ACC020\n"
        "  left for a person (about 10 min):\n"
        "    train.py:4:1: ACC120 the length is N times too long (10 min)\n"
        "other.py: refused: It uses Lightning.\n"
        "1 file converted, 1 file refused; 3 edits, 1 place left (about 10 min): train.py.\n"
    )


def test_the_last_line_names_the_files_with_places_left(converted: MadeConversion) -> None:
    files = [
        replace(converted, source=Source.from_text("x = 1\n", Path(f"{number}.py"))) for number in range(8)
    ]
    assert summary(files[:2]).endswith("2 places left (about 20 min): 0.py, 1.py.\n")
    named = "8 places left (about 1 h 20 min): 0.py, 1.py, 2.py, 3.py, 4.py, 5.py and 2 more files.\n"
    assert summary(files).endswith(named)
    files[0].remaining = []
    assert summary(files[:2]).endswith("1 place left (about 10 min): 1.py.\n")


def test_what_needs_no_change_is_not_left_and_costs_nothing(informed: MadeConversion) -> None:
    said = summary([informed])
    assert said.endswith(
        "  to know (no change is needed):\n"
        "    train.py:6:1: ACC402 every process evaluates all of it\n"
        "1 file converted; 3 edits.\n"
    )
    assert "left for a person" not in said
    assert left_over([informed], lambda _, one: one) == ""  # type: ignore[arg-type,list-item]


def test_a_reason_with_a_place_is_said_once(refused: MadeConversion) -> None:
    refused.remaining = [finding(7, "ACC006", message="left alone: It uses Lightning.", effort=30)]
    assert summary([refused]) == (
        "other.py: refused\n"
        "  left for a person (about 30 min):\n"
        "    train.py:7:1: ACC006 left alone: It uses Lightning. (30 min)\n"
        "1 file refused; 0 edits, 1 place left (about 30 min).\n"
    )


def test_what_costs_nothing_has_no_minutes(refused: MadeConversion) -> None:
    refused.remaining = [finding(2, "ACC001", message="left alone: It uses Lightning.", effort=0)]
    assert summary([refused]) == (
        "other.py: refused\n"
        "  left for a person:\n"
        "    train.py:2:1: ACC001 left alone: It uses Lightning.\n"
        "1 file refused; 0 edits, 1 place left.\n"
    )


def test_colour_only_on_request(converted: MadeConversion) -> None:
    assert "\x1b[" not in summary([converted])
    assert "\x1b[36mACC001\x1b[0m" in summary([converted], colour=True)


def test_long_lists_of_lines_are_cut(converted: MadeConversion) -> None:
    converted.applied = [finding(line, "ACC001", message="x") for line in range(1, 13)]
    assert "lines 1, 2, 3, 4, 5, 6, 7, 8 and 4 more)" in summary([converted])


def test_nothing_is_said_to_be_done_where_nothing_is_written(converted: MadeConversion) -> None:
    said = summary([converted], written=False)
    assert said.startswith("train.py: would be converted, 3 edits\n")
    assert "1 file would be converted; 3 edits" in said


def test_lines_fit_a_terminal(converted: MadeConversion) -> None:
    converted.notes = [f"averages over batches (lines {', '.join(map(str, range(100, 130)))})"]
    assert max(map(len, summary([converted]).split("\n"))) > 80
    for colour in (False, True):
        said = re.sub(r"\x1b\[[\d;]+m", "", summary([converted], width=80, colour=colour))
        assert max(map(len, said.split("\n"))) <= 80
        assert " ".join(said.split()) == " ".join(summary([converted]).split())


def test_every_rule_with_an_edit_says_what_the_edit_did() -> None:
    assert not [
        code for code, one in parts().items() if one.rule.safety is not Safety.MANUAL and not one.rule.done
    ]


def test_findings_as_compilers_print_them() -> None:
    findings = [finding(1, "ACC001", message="one"), finding(2, "ACC120", message="two", fixable=False)]
    assert findings_list(findings) == (
        "train.py:1:1: ACC001 [*] one\n"
        "train.py:2:1: ACC120 two\n"
        "2 findings, 1 of them marked [*]: `accelify convert` fixes those.\n"
    )
    safe = replace(finding(3, "ACC702", message="three", fixable=False, safety=Safety.MANUAL), fix="safe")
    assert (safe.to_json()["fixable"], safe.to_json()["fix"], safe.to_json()["safety"]) == (
        True,
        "safe",
        "safe",
    )
    assert findings_list([*findings, safe]).endswith(
        "3 findings, 2 of them marked [*]: `accelify convert` fixes 1, `--fix` fixes 1.\n"
    )
    assert findings_list([]) == ""


def test_durations() -> None:
    assert [duration(minutes) for minutes in (0, 59, 60, 80)] == ["0 min", "59 min", "1 h", "1 h 20 min"]


_PAIR = "torch.ones(8, 4), torch.ones(8, 1)"
_LOADER = f"for x, y in torch.utils.data.DataLoader(torch.utils.data.TensorDataset({_PAIR})):"
_BY_HAND = "for k in range(0, 8, 4):\n    x, y = X[k : k + 4], Y[k : k + 4]"


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        (_LOADER, "N times the batch"),
        (f"for x, y in [({_PAIR})]:", "no loader is divided between them"),
        (_BY_HAND, "the script's batches, split between them"),
    ],
)
def test_what_several_processes_do_with_the_batches(batches: str, said: str) -> None:
    """Where no loader is divided between them, they all take the same batches, but for those that are cut by hand."""
    script = (
        "import torch\n"
        f"X, Y = {_PAIR}\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"{batches}\n"
        "    optimizer.zero_grad()\n"
        "    torch.nn.functional.mse_loss(model(x), y).backward()\n"
        "    optimizer.step()\n"
    )
    conversion = convert_source(Source.from_text(script, Path("train.py")))
    (line,) = [
        line
        for line in summary([conversion], batch_size="per-process").splitlines()
        if line.startswith("on N processes: ")
    ]
    assert said in line


@pytest.mark.parametrize("width", [0, 40, 80])
def test_a_finding_its_line_of_code_and_its_mark_fit_the_terminal(width: int) -> None:
    one = replace(finding(3, "ACC702", message="three " * 12), column=90, end_column=130)
    code = "x = [" + "1, " * 60 + "]"
    lines = findings_marked([one], lambda _: code, total=False, width=width).splitlines()
    shown, mark = lines[-2:]
    assert max(map(len, lines)) <= (width or 110)
    assert set(mark[mark.index("^") :]) == {"^"}
    assert shown[mark.index("^") :].startswith(code[89:94])
