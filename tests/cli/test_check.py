"""`accelify check`: finds what convert would change, says where, and is quiet on the result."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from accelify import selection
from accelify.cli import check_run
from accelify.configuration import nearest_section
from tests.cli.conftest import PLAIN, Run


def test_findings_have_place_code_and_message(run: Run, plain: Path) -> None:
    outcome = run("check", "--output-format", "concise", plain)
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
    log = json.loads(run("check", "--output-format", "sarif", plain).out)
    assert log["version"] == "2.1.0"
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rule["help"]["markdown"].startswith(f"# {rule['id']}") for rule in rules)


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
    assert f"{plain}: for one device; convert makes 8 edits\n" in outcome.out


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


def test_text_shows_the_line_with_a_mark(run: Run, plain: Path) -> None:
    lines = run("check", plain).out.splitlines()
    number = PLAIN.splitlines().index("        loss.backward()") + 1
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{plain}:{number}:"))
    assert lines[first + 1] == f"  {number} |         loss.backward()"
    assert lines[first + 2].lstrip(" |").startswith("^")
    assert lines[first + 2].index("^") == lines[first + 1].index("loss")


def test_a_baseline_shows_what_came_later(run: Run, plain: Path, tmp_path: Path) -> None:
    accepted = tmp_path / "accepted.json"
    assert run("check", plain, "--baseline", accepted).code == 2
    written = run("check", plain, "--baseline", accepted, "--update-baseline")
    assert (written.code, written.err) == (0, f"{accepted} accepts 8 findings.\n")
    assert run("check", plain, "--baseline", accepted).code == 0
    # Lines above do not matter, a new place does.
    plain.write_text("# one line more\n" + PLAIN + "print(loss)\n")
    outcome = run("check", plain, "--baseline", accepted, "--output-format", "concise")
    assert outcome.code == 1
    assert [line.split(":")[1] for line in outcome.out.splitlines()[:-1]] == [str(PLAIN.count("\n") + 2)]
    accepted.write_text("[]")
    assert run("check", plain, "--baseline", accepted).code == 2
    assert run("check", plain, "--update-baseline").code == 2


def test_what_a_baseline_accepts_is_counted(
    run: Run, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_run, "_is_for_people", lambda options: True)
    accepted = tmp_path / "accepted.json"
    run("check", plain, "--baseline", accepted, "--update-baseline")
    number = len(json.loads(accepted.read_text())["findings"])
    said = run("check", plain, "--baseline", accepted).out
    assert said == f"No findings in 1 script beside the {number} that {accepted} accepts.\n"


def test_what_a_baseline_accepts_is_counted_beside_what_is_shown(
    run: Run, plain: Path, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted.json"
    run("check", plain, "--baseline", accepted, "--update-baseline")
    number = len(json.loads(accepted.read_text())["findings"])
    says = f"{number} findings are not shown, as {accepted} accepts them.\n"
    assert run("check", plain, "--baseline", accepted).err == says
    plain.write_text(PLAIN + "print(loss)\n")
    assert run("check", plain, "--baseline", accepted).err == says
    assert run("check", plain, "--baseline", accepted, "-q").err == ""


def test_without_a_path_it_is_the_current_folder(
    run: Run, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plain.parent)
    assert run("check", "--show-files").out == f"{plain.name}\n"


def test_excluded_files_and_those_that_git_ignores(run: Run, tmp_path: Path) -> None:
    for name in ("train.py", "old/train.py", "made/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PLAIN)

    def found(*words: str | Path) -> set[str]:
        rows = json.loads(run("check", "--output-format", "json", *words).out)
        return {Path(row["file"]).relative_to(tmp_path).as_posix() for row in rows}

    assert found(tmp_path) == {"train.py", "old/train.py", "made/train.py"}
    assert found(tmp_path, "--exclude", "old") == {"train.py", "made/train.py"}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("made/\n")
    (tmp_path / "pyproject.toml").write_text('[tool.accelify]\nexclude = ["old/*"]\n')
    nearest_section.cache_clear()
    assert found(tmp_path) == {"train.py"}
    # What is named is looked at, unless that is to be left out, too.
    assert found(tmp_path / "old/train.py", tmp_path / "made/train.py") == {"old/train.py", "made/train.py"}
    assert found(tmp_path / "old/train.py", "--force-exclude") == set()


def test_counts_files_and_exit_code(run: Run, plain: Path, tmp_path: Path) -> None:
    counts = run("check", plain, "--statistics").out.split()
    findings = json.loads(run("check", plain, "--output-format", "json").out)
    assert sum(map(int, counts[::3])) == len(findings)
    assert run("check", plain, "--exit-zero").code == 0
    file = tmp_path / "findings.txt"
    outcome = run("check", plain, "-o", file)
    assert (outcome.code, outcome.out) == (1, "")
    assert file.read_text() == run("check", plain).out
    assert run("check", plain, "-o", tmp_path / "missing" / "file").code == 2


def test_standard_input_has_the_name_of_a_file(run: Run, plain: Path) -> None:
    outcome = run("check", "-", "--stdin-filename", plain, "--output-format", "json", stdin=PLAIN.encode())
    assert {row["file"] for row in json.loads(outcome.out)} == {str(plain)}


def test_reports_of_ci_services(run: Run, plain: Path) -> None:
    findings = json.loads(run("check", plain, "--output-format", "json").out)
    rows = json.loads(run("check", plain, "--output-format", "gitlab").out)
    assert [row["location"]["lines"]["begin"] for row in rows] == [one["line"] for one in findings]
    assert len({row["fingerprint"] for row in rows}) == len(rows)
    suites = ElementTree.fromstring(run("check", plain, "--output-format", "junit").out)
    failing = [one for one in findings if one["severity"] != "info"]
    assert len(suites.findall("testsuite/testcase/failure")) == len(failing)
    assert int(suites[0].attrib["failures"]) == len(failing)
    plain.write_text("x = 1\n")
    assert (
        ElementTree.fromstring(run("check", plain, "--output-format", "junit").out)[0].attrib["failures"]
        == "0"
    )


def test_settings_that_make_no_sense_are_errors(run: Run, plain: Path) -> None:
    assert run("check", plain, "--select", "ACC999").code == 2
    assert run("check", plain, "--ignore", "ACC30").code == 1
    settings = plain.parent / "pyproject.toml"
    for text in ('ignore = ["ACC777"]', 'ignroe = ["ACC101"]', "select = 3", "exclude = 1", "select = ["):
        settings.write_text(f"[tool.accelify]\n{text}\n")
        nearest_section.cache_clear()
        selection.configured_at.cache_clear()
        # Also where the script was found in a folder.
        for path in (plain, plain.parent):
            outcome = run("check", path)
            assert (outcome.code, outcome.out) == (2, ""), text
            assert str(settings) in outcome.err


def test_messages_are_about_the_script_at_hand(run: Run, plain: Path) -> None:
    messages = [row["message"] for row in json.loads(run("check", plain, "--output-format", "json").out)]
    assert not any("the Accelerator is" in one or "placed by" in one or "already" in one for one in messages)


def test_comments_that_silence_nothing_are_noted(run: Run, plain: Path) -> None:
    line = "        loss.backward()"
    silenced = PLAIN.replace(line, f"{line}  # accelify: ignore[ACC107]")
    plain.write_text(
        silenced.replace("optimizer.zero_grad()", "optimizer.zero_grad()  # accelify: ignore[ACC702]")
    )
    rows = json.loads(run("check", plain, "--output-format", "json").out)
    (unused,) = [row for row in rows if row["code"] == "ACC012"]
    assert (unused["line"], unused["severity"]) == (
        PLAIN.split("\n").index("        optimizer.zero_grad()") + 1,
        "info",
    )
    # The older code silences what it silenced, in its line alone.
    assert PLAIN.split("\n").index(line) + 1 not in {row["line"] for row in rows}
    # A note does not fail a run.
    plain.write_text("x = 1  # accelify: ignore[ACC702]\n")
    outcome = run("check", plain, "--output-format", "concise")
    assert outcome.code == 0
    assert "ACC012" in outcome.out
    assert run("check", plain, "--ignore", "ACC012").out == ""


def test_watch_checks_again_when_a_file_changes(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    script = tmp_path / "train.py"
    script.write_text("import os\n")
    command = [sys.executable, "-u", "-m", "accelify", "check", "--watch", "--no-cache", str(tmp_path)]
    # A shell lets what it starts in the background ignore SIGINT.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeding
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "nothing found" in process.stderr.readline()
        done = threading.Event()

        def save_again_and_again() -> None:  # it may not watch yet
            while not done.wait(1):
                script.write_text(PLAIN)

        saving = threading.Thread(target=save_again_and_again)
        saving.start()
        first = process.stdout.readline()
        done.set()
        saving.join()
        assert first.startswith(str(script))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130


def test_two_runs_of_watch_have_a_line_between_them(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    command = [sys.executable, "-m", "accelify", "check", "--watch", "--no-cache", str(script)]
    shown, inner = pty.openpty()
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        text = ""
        for _ in range(60):
            if "marked [*]" in text.partition("changed ---")[2]:
                break
            if select.select([shown], [], [], 1)[0]:
                text += os.read(shown, 4096).decode()
            elif "watching" in text and "changed" not in text:
                script.write_text(PLAIN)
        process.kill()
    os.close(shown)
    between = re.search(r"watching for changes\.\s+(\x1b\[1m)?---- \d\d:\d\d:\d\d train\.py changed -+", text)
    assert between, text
    assert "\x1b[2J" not in text
    assert str(script) in text[: between.start()]


@pytest.mark.parametrize("text", ["import os\n", PLAIN])
def test_settings_that_make_no_sense_are_said_of_every_file(run: Run, tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    (tmp_path / "pyproject.toml").write_text('[tool.accelify]\nselct = ["ACC702"]\n')
    nearest_section.cache_clear()
    selection.configured_at.cache_clear()
    outcome = run("check", script)
    assert outcome.code == 2
    assert "selct" in outcome.err
    (tmp_path / "pyproject.toml").unlink()
    nearest_section.cache_clear()
    assert run("check", "--select", "ACC999", script).code == 2
    script.unlink()
    (tmp_path / "other.py").write_text("import os\n")
    assert run("check", "--select", "ACC999", tmp_path).code == 2


TRAINER = """\
import torch


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()
"""
ENTRY = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer import Trainer

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
Trainer(torch.nn.Linear(4, 1), loader).fit()
"""


@pytest.mark.parametrize("started", [False, True])
def test_a_module_is_looked_at_with_the_script_that_imports_it(
    run: Run, tmp_path: Path, started: bool
) -> None:
    """Alone it has a loader of which nothing is known, and an Accelerator of its own."""
    batches = "[(torch.ones(8, 4), torch.ones(8, 1))]"
    main = f"\nif __name__ == '__main__':\n    Trainer(torch.nn.Linear(4, 1), {batches}).fit()\n"
    (tmp_path / "trainer.py").write_text(TRAINER + main * started)
    (tmp_path / "main.py").write_text(ENTRY)
    rows = json.loads(run("check", "--output-format", "json", tmp_path).out)
    of_module = {(row["code"], row.get("part")) for row in rows if Path(row["file"]).name == "trainer.py"}
    assert ("ACC106", None) in of_module
    assert ("ACC402" in {code for code, _ in of_module}) is started
    assert (("ACC102", "ACC101") in of_module) is started
    assert run("check", tmp_path / "trainer.py").out.count("ACC102")


@pytest.mark.parametrize("way", ["option", "setting"])
def test_scripts_for_one_device_are_passed_over(run: Run, tmp_path: Path, way: str) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "main.py").write_text(ENTRY)
    (tmp_path / "train.py").write_text(PLAIN)
    several = tmp_path / "several.py"
    several.write_text(PLAIN)
    run("convert", several)
    assert run("check", tmp_path).code == 1
    if way == "setting":
        (tmp_path / "pyproject.toml").write_text("[tool.accelify]\nonly-distributed = true\n")
        nearest_section.cache_clear()
        selection.configured_at.cache_clear()
    words = ["--only-distributed"] if way == "option" else []
    outcome = run("check", *words, tmp_path)
    assert (outcome.code, outcome.out) == (0, "")
    assert run("check", *words, tmp_path / "train.py").out == ""
    with several.open("a") as file:
        file.write("open('a.txt', 'w').write('x')\n")
    outcome = run("check", *words, tmp_path)
    assert outcome.code == 1
    assert all("several.py" in line for line in outcome.out.splitlines() if "ACC" in line)
    assert "ACC702" in outcome.out


def test_a_project_for_one_device_gets_one_message_a_script(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "main.py").write_text(ENTRY)
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "several.py").write_text(PLAIN)
    run("convert", tmp_path / "several.py")
    with (tmp_path / "several.py").open("a") as file:
        file.write("open('a.txt', 'w').write('x')\n")
    outcome = run("check", tmp_path)
    every = json.loads(run("check", "--output-format", "json", tmp_path).out)
    edits = [row for row in every if Path(row["file"]).name in ("main.py", "trainer.py")]
    others = [row for row in every if Path(row["file"]).name == "several.py"]
    lines = outcome.out.splitlines()
    assert others
    assert lines[-3:] == [
        f"{tmp_path / 'main.py'}: for one device; convert makes {len(edits)} edits",
        f"{tmp_path / 'train.py'}: for one device; convert makes 8 edits",
        f"2 scripts for one device: `accelify convert` rewrites them; -v lists {len(edits) + 8} findings.",
    ]
    assert all("several.py" in line for line in lines if "ACC" in line)
    assert outcome.code == 1
    assert f"\n{len(every)} findings, " in run("check", "-v", tmp_path).out
    # A script that is named gets each finding.
    assert run("check", tmp_path / "train.py").out.count("ACC") == 8


@pytest.mark.parametrize("again", [False, True])
def test_the_count_of_edits_is_that_of_convert_whatever_is_not_shown(
    run: Run, tmp_path: Path, again: bool
) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    for _ in range(1 + again):  # once more of the cache
        outcome = run("check", "--ignore", "acc702", tmp_path)
    assert f"{tmp_path / 'train.py'}: for one device; convert makes 8 edits\n" in outcome.out
    assert "; -v lists 7 findings." in outcome.out


def test_a_named_file_that_is_no_script_by_its_name_is_named(run: Run, tmp_path: Path) -> None:
    """Nothing that is wrong, as a script may have any name."""
    for name, noted in (("notes.txt", True), ("train", True), ("empty.py", False)):
        (tmp_path / name).write_text("")
        outcome = run("check", tmp_path / name)
        assert outcome.code == 0
        assert (f"no findings in {tmp_path / name}, whose name" in " ".join(outcome.err.split())) == noted
    assert run("check", tmp_path).err == ""


LEFT = """\
import time
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.load("data.pt"), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
begun, best, kept = time.time(), 0, 0
for epoch in range(9):
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).mean()
        accelerator.backward(loss)
        optimizer.step()
    figure = accelerator.reduce(loss.detach(), "mean")
    if time.time() - begun > 60:
        break
    kept = 1 + kept
    if CONDITION:
        accelerator.save_state("state")
"""


@pytest.mark.parametrize(
    ("condition", "lines"), [("kept > 3", [17]), ("torch.rand(1) > loss.item()", [17, 20])]
)
def test_a_condition_that_some_reach_for_another_cause_is_none_of_its_own(
    run: Run, tmp_path: Path, condition: str, lines: list[int]
) -> None:
    """The columns are those of the statements."""
    (tmp_path / "train.py").write_text(LEFT.replace("CONDITION", condition))
    found = json.loads(run("check", "--output-format", "json", tmp_path / "train.py").out)
    parted = [(one["line"], one["column"]) for one in found if one["code"] == "ACC704"]
    assert parted == [(line, 5) for line in lines]


@pytest.mark.parametrize(
    ("flag", "where"),
    [
        ("is_main_process", "only on the main process (line 5)"),
        ("is_local_main_process", "only on the main process of each machine (line 5)"),
    ],
)
def test_the_main_process_of_a_machine_is_named_as_one(
    run: Run, tmp_path: Path, flag: str, where: str
) -> None:
    (tmp_path / "train.py").write_text(
        "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(object())\n"
        f"accelerator.backward(model(1))\nif accelerator.{flag}:\n    accelerator.wait_for_everyone()\n"
    )
    assert where in run("check", "--output-format", "concise", tmp_path / "train.py").out
