"""What is left for a person is given as lines of the files that `convert` has written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelify.conversion import Conversion
from accelify.report.written import Written
from accelify.source import Source
from tests.cli.conftest import PLAIN, Run

# A figure that nothing puts together from several processes is left for a person, below edits that move its line.
LEFT = PLAIN.replace("for x, y in loader:", "worst = None\n    for x, y in loader:").replace(
    "    print(epoch, loss.item())  # the last batch's\n",
    "        worst = loss.item() if worst is None else max(worst, loss.item() ** 2)\n    print(epoch, worst)\n",
)

REFUSED = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""


def places(text: str) -> list[tuple[str, int, str]]:
    found = re.findall(r"^ +(\S+\.py):(\d+):\d+: ACC701 (.*)", text, re.MULTILINE)
    return [(file, int(line), message) for file, line, message in found]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_places_are_those_of_the_written_file(elsewhere: bool, run: Run, tmp_path: Path) -> None:
    script, target = tmp_path / "train.py", tmp_path / "new.py"
    script.write_text(LEFT)
    words = ["-o", str(target)] if elsewhere else []
    page = tmp_path / "page.html"
    outcome = run("convert", str(script), *words, "--report", str(page))
    assert outcome.out.startswith(f"{script}: converted{f' into {target}' if elsewhere else ''}, ")
    written = (target if elsewhere else script).read_text().split("\n")
    found = places(outcome.out)
    assert found
    for file, line, message in found:
        assert file == str(target if elsewhere else script)
        assert "print(epoch, worst)" in written[line - 1]
        cause = re.search(r"`max\(worst, loss.item\(\) \*\* 2\)` \((\d+)\)", message)
        assert cause is None or "max(worst" in written[int(cause[1]) - 1]
        assert page.read_text().count(f"{file}:{line}:") == 1
        assert page.read_text().count(f"</code> ({cause[1]})" if cause else "") > 1


def test_what_was_done_is_said_with_the_lines_where_it_was_done(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    said = run("convert", str(script)).out
    written = script.read_text().split("\n")
    done = {
        words: [written[int(line) - 1].strip() for line in lines.split(", ")]
        for words, lines in re.findall(r"^  (\w.*) \(lines? ([\d, ]+)\) ACC\d+$", said, re.MULTILINE)
    }
    assert done["made an Accelerator"] == [
        "from accelify.runtime import Accelerator",
        "accelerator = Accelerator()",
    ]
    assert done["took the device from the Accelerator"] == ["device = accelerator.device"]
    (prepared,) = done["prepared the model, the optimizer and the loader"]
    assert ".prepare(" in prepared
    assert all("print(" in line for line in done["left printing to the main process"])


def test_edits_with_their_reasons_are_no_work_that_is_left(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    said = run("convert", "-v", str(script)).out
    assert re.search(r":\d+: ACC102 made an Accelerator: ", said)
    assert " min)" not in said


def test_a_script_that_is_refused_is_named_as_it_is(run: Run, tmp_path: Path) -> None:
    script, target = tmp_path / "train.py", tmp_path / "new.py"
    script.write_text(REFUSED)
    said = run("convert", str(script), "-o", str(target)).out
    assert not target.exists()
    assert f"    {script}:3:" in said
    assert "new.py" not in said


def test_all_lines_that_a_note_names_are_those_of_the_written_files(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    one, other = (Source.from_text("a\nb\nc\nd\n", path) for path in (tmp_path / "m.py", folder / "n.py"))
    conversions = [
        Conversion(one, "converted", new_text="new\na\nb\nc\nd\n"),
        Conversion(other, "converted", new_text="x\ny\na\nb\nc\nd\n"),
    ]
    paths = [conversion.source.path for conversion in conversions]
    written = Written(conversions, {path: path for path in paths if path is not None})
    for before, after in (
        ("shown: lines 1, sub/n.py:2, 3 and 4 more", "shown: lines 2, sub/n.py:4, 4 and 4 more"),
        ("averages (sub/n.py:2): short, `at line 1`", "averages (sub/n.py:4): short, `at line 1`"),
        ("the same at lines 1 (`f`), 3; m.py:2-3", "the same at lines 2 (`f`), 4; m.py:3-4"),
        ("`x` (2), n.py, lines 1, 2", "`x` (3), n.py, lines 3, 4"),
    ):
        assert written.note(conversions[0], before) == after


def test_places_of_a_diff_are_those_of_the_original(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEFT)
    found = places(run("convert", "--diff", str(script)).err)
    assert found
    assert all("print(epoch, worst)" in LEFT.split("\n")[line - 1] for _, line, _ in found)


def test_one_file_is_no_place_for_several_and_a_notebook_stays_one(run: Run, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(PLAIN)
    out = tmp_path / "out.py"
    outcome = run("convert", str(tmp_path / "a.py"), str(tmp_path / "b.py"), "-o", str(out))
    assert outcome.code == 2
    assert "folder" in outcome.err
    outcome = run("convert", str(tmp_path / "a.py"), "-o", str(tmp_path / "a.ipynb"))
    assert outcome.code == 2
    assert "stays one" in outcome.err
    assert not out.exists()


def test_convert_leaves_out_what_is_excluded(run: Run, tmp_path: Path) -> None:
    for name in ("train.py", "old/train.py", "copies/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PLAIN)
    (tmp_path / "pyproject.toml").write_text('[tool.accelify]\nexclude = ["copies"]\n')
    run("convert", str(tmp_path), "--exclude", "old")
    assert (tmp_path / "train.py").read_text() != PLAIN
    assert (tmp_path / "old/train.py").read_text() == (tmp_path / "copies/train.py").read_text() == PLAIN


def test_a_line_of_a_file_that_stays_is_named_as_it_is(run: Run, tmp_path: Path) -> None:
    load = 'from_pretrained("small", device_map="auto")'
    nets = f"from transformers import AutoModel\n\n\ndef make():\n    return AutoModel.{load}\n"
    (tmp_path / "nets.py").write_text(nets)
    script = tmp_path / "train.py"
    script.write_text(
        f"import os\n{PLAIN}".replace("import os\n", "from nets import make\n\nother = make()\n", 1)
    )
    out = run("convert", str(script), "-o", str(tmp_path / "new.py")).out
    assert "nets.py:5:12: ACC714" in out


@pytest.mark.parametrize("way", ["named", "standard input"])
def test_what_is_printed_has_the_lines_that_are_named(run: Run, tmp_path: Path, way: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN + 'import os\nos.system("ls")\n')
    if way == "named":
        outcome = run("convert", "-o", "-", script)
    else:
        outcome = run("convert", "-", stdin=script.read_bytes())
    line = next(n for n, text in enumerate(outcome.out.splitlines(), 1) if text.startswith("os.system"))
    assert f":{line}:1: ACC702" in outcome.err
    printed = next(n for n, text in enumerate(outcome.out.splitlines(), 1) if "accelerator.print" in text)
    assert f"left printing to the main process (line {printed})" in outcome.err


@pytest.mark.parametrize("amount", ["", "--quiet"])
def test_where_the_page_is_is_said(run: Run, tmp_path: Path, amount: str) -> None:
    script, page = tmp_path / "train.py", tmp_path / "page.html"
    script.write_text(PLAIN)
    outcome = run("convert", "--report", page, *([amount] if amount else []), script)
    assert page.exists()
    assert (f"Written: {page}" in outcome.err) is (not amount)
