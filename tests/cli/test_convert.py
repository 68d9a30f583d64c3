"""`accelify convert`: where the result goes, what is said, and that bad input touches nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLAIN, Run

FOREIGN = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.backward(loss)\n"


def test_in_place_with_a_summary(run: Run, plain: Path) -> None:
    plain.chmod(0o755)
    outcome = run("convert", plain)
    new = plain.read_text()
    assert outcome.code == 0, outcome.err
    assert "accelerator.backward(loss)" in new
    assert f"{plain}: converted" in outcome.out
    assert "1 file converted" in outcome.out
    assert "\x1b[" not in outcome.out
    assert stat.S_IMODE(plain.stat().st_mode) == 0o755
    assert os.listdir(plain.parent) == ["train.py"]


def test_a_second_time_changes_nothing(run: Run, plain: Path) -> None:
    run("convert", plain)
    first = plain.read_bytes()
    outcome = run("convert", plain)
    assert outcome.code == 0
    assert plain.read_bytes() == first
    assert "1 file unchanged" in outcome.out


def test_for_accelerate(run: Run, plain: Path) -> None:
    outcome = run("convert", "--runtime", "accelerate", plain)
    first = plain.read_text()
    assert outcome.code == 0, outcome.err
    assert "from accelerate import Accelerator" in first
    assert "accelify" not in first
    assert "ACC601" in outcome.out
    outcome = run("convert", "--runtime", "accelerate", plain)
    assert outcome.code == 0
    assert "it is converted already (it imports accelerate)" in outcome.out
    assert plain.read_text() == first
    outcome = run("check", plain)
    assert (outcome.code, outcome.out) == (0, "")
    assert run("convert", "--runtime", "lightning", plain).code == 2


def test_a_link_stays_a_link(run: Run, plain: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(plain)
    assert run("convert", link).code == 0
    assert link.is_symlink()
    assert "accelerator" in plain.read_text()


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")


@needs_git
def test_diff_writes_nothing_and_applies(run: Run, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plain.parent)
    outcome = run("convert", "--diff", plain.name)
    assert outcome.code == 0
    assert plain.read_text() == PLAIN
    assert outcome.out.startswith("--- a/train.py\n+++ b/train.py\n@@")
    assert "1 file would be converted" in outcome.err
    subprocess.run(["git", "apply", "-"], input=outcome.stdout, check=True)
    patched = plain.read_text()
    plain.write_text(PLAIN)
    run("convert", plain)
    assert patched == plain.read_text()


@needs_git
def test_diff_of_a_windows_file_without_a_last_newline(
    run: Run, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plain.parent)
    old = PLAIN.rstrip("\n").replace("\n", "\r\n").encode()
    plain.write_bytes(old)
    diff = run("convert", "--diff", plain.name).stdout
    subprocess.run(["git", "apply", "-"], input=diff, check=True)
    patched = plain.read_bytes()
    plain.write_bytes(old)
    run("convert", plain)
    assert patched == plain.read_bytes() != old
    assert b"\n" not in patched.replace(b"\r\n", b"")


def test_output_to_a_file(run: Run, plain: Path, tmp_path: Path) -> None:
    assert run("convert", plain, "--output", tmp_path / "new.py").code == 0
    assert plain.read_text() == PLAIN
    assert "accelerator" in (tmp_path / "new.py").read_text()


def test_output_to_a_folder_keeps_the_tree(run: Run, tmp_path: Path) -> None:
    for name in ("src/a/train.py", "src/b/train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(PLAIN)
    outcome = run("convert", tmp_path / "src", "--output", f"{tmp_path / 'out'}/")
    assert outcome.code == 0, outcome.err
    assert "accelerator" in (tmp_path / "out/a/train.py").read_text()
    assert "accelerator" in (tmp_path / "out/b/train.py").read_text()
    assert (tmp_path / "src/a/train.py").read_text() == PLAIN
    assert "looked at 2 Python files, 2 with a training loop" in outcome.err


def test_output_to_a_folder_starts_there(run: Run, tmp_path: Path) -> None:
    parts = {
        "run.py": PLAIN.replace("torch.nn.Linear(4, 1)", "net()").replace(
            "import torch\n", "import torch\nfrom parts.nets import net\n", 1
        ),
        "parts/__init__.py": "import sizes\n",
        "parts/nets.py": "import torch\nimport sizes\ndef net():\n    return torch.nn.Linear(sizes.IN, 1)\n",
        "sizes.py": "IN = 4\n",
        "unused.py": "1\n",
        "notes.txt": "no module\n",
    }
    for name, text in parts.items():
        (path := tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in ([tmp_path / "src"], [tmp_path / "src/run.py"]):
        out = tmp_path / f"new-{words[0].stem}"
        outcome = run("convert", *words, "--output", f"{out}/")
        assert outcome.code == 0, outcome.err
        assert "copied unchanged (imported by the scripts): parts/" in outcome.err
        written = {one.relative_to(out).as_posix() for one in out.rglob("*") if one.is_file()}
        assert written == {"run.py", "parts/__init__.py", "parts/nets.py", "sizes.py"}
        assert (out / "parts/nets.py").read_text() == parts["parts/nets.py"]
    done = subprocess.run([sys.executable, "run.py"], cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_output_that_two_scripts_would_share(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(PLAIN)
    outcome = run("convert", tmp_path / "a/train.py", tmp_path / "b/train.py", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert "would both become" in outcome.err
    assert not (tmp_path / "out").exists()


def test_output_to_the_screen(run: Run, plain: Path) -> None:
    outcome = run("convert", plain, "--output", "-")
    assert plain.read_text() == PLAIN
    assert "accelerator.backward(loss)" in outcome.out
    assert "1 file converted" in outcome.err


def test_standard_input_to_standard_output(run: Run, plain: Path) -> None:
    outcome = run("convert", "-", stdin=PLAIN.encode())
    run("convert", plain)
    assert outcome.code == 0
    assert outcome.out == plain.read_text()
    assert "<stdin>: converted" in outcome.err


_DDP_IMPORTS = (
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data.distributed import DistributedSampler\n"
)


def test_a_script_with_ddp_is_left_alone_at_its_wrapper(run: Run, tmp_path: Path) -> None:
    lines = PLAIN.replace("import torch\n", f"import torch\n{_DDP_IMPORTS}", 1).splitlines()
    made = next(number for number, line in enumerate(lines) if line.startswith("model = "))
    lines[made:made] = ["sampler = DistributedSampler([1])"]
    lines[made + 2 : made + 2] = ["model = DDP(model)"]
    script = tmp_path / "train.py"
    script.write_text("\n".join(lines) + "\n")
    shown = run("convert", "--diff", script).err
    assert f"train.py:{made + 3}:9: ACC001 left alone: it uses DistributedDataParallel already" in shown


def test_replace_ddp(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(Path(__file__).parents[2] / "fixtures" / "ddp_module" / "before.py", script)
    before = run("convert", "--diff", script)
    assert before.code == 1
    assert "--replace-ddp may convert it" in before.err
    after = run("convert", "--replace-ddp", script, "--output", "-")
    assert after.code == 0, after.err
    assert "DistributedDataParallel" not in after.out
    wrong = run("convert", "--replace-ddp", "--batch-size", "total", script)
    assert wrong.code == 2
    assert "leave out --batch-size total" in wrong.err


def test_no_same_losses_are_promised_where_one_is_left(run: Run, plain: Path) -> None:
    said = run("convert", "--diff", "--batch-size", "total", plain).err
    assert (
        "in as many steps, with the same losses but for dropout, noise drawn in a step and batch statistics\n"
        in said
    )
    plain.write_text(plain.read_text().replace("F.mse_loss(model(x), y)", "(model(x).sum() / y.abs().sum())"))
    said = run("convert", "--diff", "--batch-size", "total", plain).err
    assert " ACC705 " in said
    assert "in as many steps, with other losses than on one where ACC705 is left\n" in said


def test_batch_size_total(run: Run, plain: Path) -> None:
    assert "split_batches=True" in run("convert", "--batch-size", "total", plain, "--output", "-").out
    assert "split_batches" not in run("convert", plain, "--output", "-").out


def test_json(run: Run, plain: Path) -> None:
    outcome = run("convert", "--json", plain)
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert report["summary"]["converted"] == 1
    (file,) = report["files"]
    assert (file["file"], file["status"], file["changed"]) == (str(plain), "converted", True)
    assert file["remaining"] == []
    assert {"code", "name", "message", "severity", "file", "line", "column", "end"} <= set(file["applied"][0])
    assert "accelerator" in plain.read_text()


def test_json_of_standard_input_has_the_text(run: Run, plain: Path) -> None:
    report = json.loads(run("convert", "--json", "-", stdin=PLAIN.encode()).out)
    run("convert", plain)
    assert report["files"][0]["file"] is None
    assert report["files"][0]["text"] == plain.read_text()


def test_a_script_of_another_framework_is_left_alone(run: Run, plain: Path) -> None:
    plain.write_text(FOREIGN)
    outcome = run("convert", plain)
    assert outcome.code == 1
    assert plain.read_text() == FOREIGN
    assert "refused" in outcome.out
    assert "Accelerate" in outcome.out


def test_a_script_named_twice_is_converted_once(run: Run, plain: Path) -> None:
    outcome = run("convert", plain, plain.parent, plain)
    assert outcome.code == 0
    assert "1 file converted" in outcome.out


BAD = {
    "Python 2": (b"import torch\nprint 'loss'\nloss.backward()\n", "line 2: this is Python 2"),
    "not Python": (b"import torch\nloss.backward(\n", "not valid Python"),
    "encoding": (b"import torch\nx = '\xe9'\nloss.backward()\n", "line 2: not valid utf-8"),
    "binary": (b"\x7fELF\x02\0\0", "null byte"),
}


@pytest.mark.parametrize(("data", "says"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", ["convert", "check"])
def test_bad_input_is_one_sentence_and_touches_nothing(
    run: Run, plain: Path, command: str, data: bytes, says: str
) -> None:
    bad = plain.with_name("bad.py")
    bad.write_bytes(data)
    outcome = run(command, plain, bad)
    assert outcome.code == 2
    assert says in outcome.err
    assert str(bad) in outcome.err
    assert outcome.err.count("\n") == 1
    assert plain.read_text() == PLAIN
    assert bad.read_bytes() == data


@pytest.mark.parametrize("command", ["convert", "check"])
def test_bad_standard_input(run: Run, command: str) -> None:
    outcome = run(command, "-", stdin=b"print 'loss'\n")
    assert outcome.code == 2
    assert outcome.err == ("accelify: <stdin>, line 1: this is Python 2: port it to Python 3 first.\n")
    assert outcome.out in ("", "[]\n")


@pytest.mark.parametrize("command", ["convert", "check"])
def test_missing_path(run: Run, plain: Path, command: str) -> None:
    outcome = run(command, plain, plain.with_name("none.py"))
    assert outcome.code == 2
    assert "none.py does not exist" in outcome.err
    assert plain.read_text() == PLAIN


def test_folder_without_scripts(run: Run, tmp_path: Path) -> None:
    outcome = run("convert", tmp_path)
    assert outcome.code == 2
    assert "holds no Python file" in outcome.err
    (tmp_path / "model.py").write_text("import torch\n")
    outcome = run("convert", tmp_path)
    assert outcome.code == 2
    assert "holds no training script (1 Python file looked at" in outcome.err


def test_a_folders_unreadable_script_is_passed_over_with_a_word(run: Run, plain: Path) -> None:
    bad = plain.with_name("bad.py")
    bad.write_bytes(BAD["Python 2"][0])
    outcome = run("convert", plain.parent)
    assert outcome.code == 1
    assert "this is Python 2" in outcome.err
    assert "accelerator" in plain.read_text()


def test_read_only_file(run: Run, plain: Path) -> None:
    other = plain.with_name("other.py")
    other.write_text(PLAIN)
    other.chmod(0o444)
    outcome = run("convert", plain, other)
    assert outcome.code == 2
    assert "other.py is read-only" in outcome.err
    assert plain.read_text() == other.read_text() == PLAIN


def test_options_that_do_not_go_together(run: Run, plain: Path) -> None:
    assert run("convert", "--diff", plain, "--output", "x.py").code == 2
    assert run("convert", "-", plain).code == 2
    assert run("convert", "-", "--output", "x.py").code == 2
    assert run("convert", "--json", plain, "--output", "-").code == 2
    assert plain.read_text() == PLAIN


LOOP = """
def fit(model, optimizer, data):
    for x in data:
        model(x).mean().backward()
        optimizer.step()
"""
ENTRY = """
import sys
sys.path.insert(0, 'lib')
import torch
from torch.utils.data import DataLoader, TensorDataset
from loops import fit

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fit(model, optimizer, [torch.ones(3)])
"""


def test_a_folder_s_entry_points_are_named(run: Run, tmp_path: Path) -> None:
    """Its loop stands in a file without a word of torch, in a folder that the script adds to its path."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "loops.py").write_text(LOOP)
    (tmp_path / "main.py").write_text(ENTRY)
    (tmp_path / "setup.py").write_text("print(1)\n")
    outcome = run("convert", tmp_path)
    assert "looked at 3 Python files, 0 with a training loop; entry point: main.py" in outcome.err
    assert "accelerator.backward" in (tmp_path / "lib" / "loops.py").read_text()
    assert "accelerator.prepare(model, optimizer)" in (tmp_path / "main.py").read_text()


def test_a_folder_in_which_nothing_is_done_says_why(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOP)
    (tmp_path / "main.py").write_text("import loops\nprint(loops.fit)\n")
    assert "main.py: unchanged: it has no training loop" in run("convert", tmp_path).out


def test_modules_of_a_script_that_is_left_alone_are_not_named_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("import torch\n" + LOOP)
    (tmp_path / "main.py").write_text(ENTRY + "import deepspeed\n")
    outcome = run("convert", tmp_path)
    assert "main.py: refused" in outcome.out
    assert "loops.py: refused" not in outcome.out


def test_a_module_that_sets_the_path(run: Run, tmp_path: Path) -> None:
    for folder in ("lib", "tools"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib" / "loops.py").write_text(LOOP)
    places = "import os, sys\nplace = os.path.join(os.path.dirname(__file__), '..', 'lib')\nsys.path.insert(0, place)\n"
    (tmp_path / "tools" / "_places.py").write_text(places)
    entry = ENTRY.replace("sys.path.insert(0, 'lib')", "import _places")
    (tmp_path / "tools" / "main.py").write_text(entry)
    assert "entry point: tools/main.py" in run("convert", tmp_path).err
    assert "accelerator.backward" in (tmp_path / "lib" / "loops.py").read_text()


def test_tests_in_a_folder_stay(run: Run, plain: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "tests").mkdir(parents=True)
    for name in ("train.py", "tests/test_train.py"):
        shutil.copy(plain, tmp_path / "project" / name)
    (tmp_path / "project" / "show.py").write_text("import train\nprint(train)\n")
    outcome = run("convert", tmp_path / "project")
    assert "entry points" not in outcome.err
    assert (tmp_path / "project" / "tests" / "test_train.py").read_bytes() == plain.read_bytes()
    assert "accelerator" in (tmp_path / "project" / "train.py").read_text()
    named = run("convert", tmp_path / "project" / "tests" / "test_train.py")
    assert "1 file converted" in named.out


@needs_git
@pytest.mark.parametrize("words", [["."], [".", "--no-respect-gitignore"], ["scratch/try.py"]])
def test_scripts_of_a_folder_that_are_not_converted_are_named_with_the_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("scratch/\n")
    for place in ("train.py", "scratch/try.py", "scratch/again.py", "tests/some.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    outcome = run("convert", "--diff", *words)
    in_folder, ignored = words[0] == ".", words == ["."]
    assert ("+++ b/scratch/try.py" in outcome.out) is not ignored
    way = "(name a file, or give --no-respect-gitignore)"
    said = f"left out, as Git ignores them {way}: scratch/again.py, scratch/try.py\n"
    assert (said in outcome.err) is ignored
    assert (
        "left out, as in a folder of tests (name a file to convert it): tests/some.py\n" in outcome.err
    ) is in_folder
    assert ("entry point: train.py\n" in outcome.err) is ignored


@needs_git
def test_who_names_a_folder_that_git_ignores_wants_what_is_in_it(run: Run, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "build" / "lib").mkdir(parents=True)
    (tmp_path / "build" / "lib" / "train.py").write_text(PLAIN)
    for named in ("build", "build/lib"):
        assert "1 file would be converted" in run("convert", "--diff", tmp_path / named).err
    assert "for one device" in run("check", tmp_path / "build").out


def test_a_module_that_cannot_be_converted_alone_is_named(run: Run, tmp_path: Path) -> None:
    """Its training loop is looked at with the script that imports it."""
    (tmp_path / "steps.py").write_text(
        "import torch\n\n\ndef step(model, optimizer, x, y):\n    optimizer.zero_grad()\n"
        "    torch.nn.functional.mse_loss(model(x), y).backward()\n    optimizer.step()\n"
    )
    (tmp_path / "train.py").write_text(PLAIN + "\nfrom steps import step\n")
    said = run("convert", "--diff", tmp_path).err
    assert f"not converted by itself: imported by a script that is: {tmp_path / 'steps.py'}\n" in said


def test_a_script_of_accelerate_gets_the_way_to_this_runtime(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from accelerate import Accelerator\n" + PLAIN)
    said = run("convert", script).out
    assert "to run it on accelify's runtime, import the same names from `accelify.runtime`" in said
    assert " min" not in said


def test_a_script_with_modules_goes_into_a_folder_that_is_new(run: Run, plain: Path) -> None:
    """Without a slash at its end, as where a folder is converted."""
    (plain.parent / "steps.py").write_text("def update(loss):\n    loss.backward()\n")
    plain.write_text(
        f"from steps import update\n{plain.read_text()}".replace("loss.backward()", "update(loss)")
    )
    assert run("convert", plain, "--output", plain.parent / "new").code == 0
    assert sorted(one.name for one in (plain.parent / "new").iterdir()) == ["steps.py", plain.name]
    assert "name a folder" in run("convert", plain, "--output", plain.parent / "new.py").err


@pytest.mark.parametrize(
    ("imported", "named", "inside"),
    [
        ("driver.helper", "driver/train.py", "driver/"),
        ("helper", "driver/train.py", ""),
        ("project.driver.helper", "driver/train.py", "project/driver/"),
    ],
)
def test_output_to_a_folder_has_the_package_that_the_names_begin_with(
    run: Run, tmp_path: Path, imported: str, named: str, inside: str
) -> None:
    project = tmp_path / "project"
    (project / "driver").mkdir(parents=True)
    for folder in (project, project / "driver"):
        (folder / "__init__.py").touch()
    (project / "driver/helper.py").write_text("def step(loss):\n    loss.backward()\n")
    text = PLAIN.replace("import torch\n", f"import torch\nfrom {imported} import step\n", 1)
    (project / named).write_text(text.replace("loss.backward()", "step(loss)"))
    out = tmp_path / "out"
    outcome = run("convert", project / named, "--output", f"{out}/")
    assert outcome.code == 0, outcome.err
    assert "accelerator.backward" in (out / inside / "helper.py").read_text()
    assert (out / inside / "train.py").is_file()
