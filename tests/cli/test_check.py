"""`accelify check`: finds what convert would change, says where, and is quiet on the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import PLAIN, Run


def test_findings_have_place_code_and_message(run: Run, plain: Path) -> None:
    outcome = run("check", plain)
    assert outcome.code == 1
    assert plain.read_text() == PLAIN
    lines = outcome.out.splitlines()
    for line in lines[:-1]:
        assert re.match(rf"{re.escape(str(plain))}:\d+:\d+: ACC\d{{3}} \[\*\] \S", line), line
    assert f"{len(lines) - 1} findings" in lines[-1]


def test_quiet_on_a_converted_script(run: Run, plain: Path) -> None:
    run("convert", plain)
    outcome = run("check", plain)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_json_is_a_list_of_findings(run: Run, plain: Path) -> None:
    outcome = run("check", "--output-format", "json", plain)
    findings = json.loads(outcome.out)
    assert outcome.code == 1
    backward = PLAIN.splitlines().index("        loss.backward()") + 1
    assert any(finding["line"] == backward for finding in findings)
    for finding in findings:
        assert {"code", "name", "message", "severity", "file", "line", "column", "end"} <= set(finding)
        assert finding["file"] == str(plain)
        assert 1 <= finding["line"] <= finding["end"]["line"] <= PLAIN.count("\n") + 1
        assert finding["column"] >= 1
    places = [(finding["line"], finding["column"]) for finding in findings]
    assert places == sorted(places)


def test_json_of_nothing_is_an_empty_list(run: Run, plain: Path) -> None:
    plain.write_text("x = 1\n")
    outcome = run("check", "--output-format", "json", plain)
    assert (outcome.code, json.loads(outcome.out)) == (0, [])


def test_quiet_on_a_script_that_is_distributed_already(run: Run, plain: Path) -> None:
    plain.write_text("import torch\nfrom accelerate import Accelerator\nAccelerator().backward(loss)\n")
    outcome = run("check", plain)
    assert (outcome.code, outcome.out) == (0, "")


def test_select_ignore_and_comments(run: Run, plain: Path) -> None:
    codes = {finding["code"] for finding in json.loads(run("check", "--output-format", "json", plain).out)}
    first, *others = sorted(codes)
    assert others
    only = json.loads(run("check", "--output-format", "json", "--select", first, plain).out)
    assert {finding["code"] for finding in only} == {first}
    assert run("check", "--ignore", ",".join(codes), plain).code == 0
    assert run("check", "--select", "E501", plain).code == 2
    plain.write_text(PLAIN + "# accelify: ignore-file\n")
    assert run("check", plain).code == 0


def test_formats_of_services(run: Run, plain: Path) -> None:
    assert run("check", "--output-format", "github", plain).out.startswith(f"::error file={plain},line=")
    assert json.loads(run("check", "--output-format", "sarif", plain).out)["version"] == "2.1.0"


def test_standard_input(run: Run) -> None:
    outcome = run("check", "-", stdin=PLAIN.encode())
    assert outcome.code == 1
    assert outcome.out.startswith("<stdin>:")


def test_a_folder_with_no_loop_is_quiet(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\n")
    assert run("check", tmp_path).code == 0


def test_the_rest_is_checked_beside_an_unreadable_file(run: Run, plain: Path) -> None:
    plain.with_name("bad.py").write_text("import torch\nprint 'x'\nloss.backward()\n")
    outcome = run("check", plain.parent)
    assert outcome.code == 1
    assert "this is Python 2" in outcome.err
    assert "ACC" in outcome.out


def test_a_script_of_several_processes_is_gone_through_as_it_is(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from accelerate import Accelerator\n"
        "accelerator = Accelerator()\n"
        "if accelerator.is_main_process:\n"
        "    accelerator.wait_for_everyone()\n"
    )
    result = run("check", script)
    assert result.code == 1
    assert "train.py:4:5: ACC704 `accelerator.wait_for_everyone` is not reached by all ranks" in result.out
    script.write_text(script.read_text().replace("if accelerator.is_main_process:\n    ", ""))
    result = run("check", script)
    assert (result.code, result.out) == (0, "")
