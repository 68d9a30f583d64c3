"""`accelify verify` as a user calls it: output, exit codes, and bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelify.verify.lines import LineMap

from . import scripts

VERIFY = [sys.executable, "-c", "from accelify.cli.main import main; main()", "verify"]


def verify(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VERIFY, *words], cwd=cwd, capture_output=True, text=True, timeout=300)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What stands on standard error, in one line."""
    return " ".join(done.stderr.split())


@pytest.mark.distributed
def test_a_plain_script_is_converted_and_proven(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "train.py").write_text("import sys\n" + scripts.plain().replace("0.05", "float(sys.argv[1])"))
    before = (tmp_path / "train.py").read_bytes()
    pages = ("--plot", "curves.png", "--report", "page.html")
    done = verify("train.py", "--steps", "3", *pages, "--", "0.01", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^verdict so far +equal +equal to rounding", done.stdout, re.MULTILINE), done.stdout
    assert "equal to rounding" in done.stdout
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "train.py").read_bytes() == before
    page = (tmp_path / "page.html").read_text()
    assert ">ACC712<" in page
    assert ">ACC103<" not in page  # what one part of a rule was called
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "page.html", "train.py"]


@pytest.mark.distributed
def test_json_has_the_numbers_and_different_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(scripts.plain())
    (tmp_path / "wrong.py").write_text(scripts.converted(optimizer=scripts.SGD.replace("0.05", "0.06")))
    done = verify("train.py", "--against", "wrong.py", "--steps", "2", "-n", "1", "--json", cwd=tmp_path)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert len(report["original"]["losses"]) == 2
    assert report["original"]["learning_rates"] == [[0.05], [0.05]]
    (only,) = report["runs"]
    assert only["verdict"] == "different"
    assert only["first_difference"] == {
        "what": "loss",
        "number": 2,
        "original": report["original"]["losses"][1],
        "this": only["losses"][1],
    }


def test_a_refusal_verifies_nothing_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from accelerate import Accelerator\nfrom torch import nn\naccelerator = Accelerator()\n"
        "for x in []:\n    loss = nn.Linear(1, 1)(x)\n    loss.backward()\n"
    )
    done = verify("train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "train.py uses Hugging Face Accelerate already, and its plain version, to compare it with, is not known"
        in said(done)
    )
    (tmp_path / "train.py").write_text("from accelify.runtime import Accelerator\nloss.backward()\n")
    assert "train.py is converted already, and its plain version" in said(verify("train.py", cwd=tmp_path))
    (tmp_path / "train.py").write_text(
        "import pytorch_lightning as pl\nfrom torch import nn\ntrainer = pl.Trainer()\n"
        "for x in []:\n    loss = nn.Linear(1, 1)(x)\n    loss.backward()\n"
    )
    done = verify("train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "was not converted" in done.stdout
    assert "ightning" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.py", None, "absent.py does not exist"),
        ("two.py", "print 'x'\n", "two.py, line 1"),
        ("train.py", "loss.backward()\n", "NameError"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
        (tmp_path / "converted.py").write_text("")
    done = verify(name, "--against", "converted.py" if text else name, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("file", "words"), [("x.doc", "endings .png"), ("absent/x.png", "no folder absent")])
def test_a_plot_that_cannot_be_drawn_is_said_before_anything_runs(
    tmp_path: Path, file: str, words: str
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "train.py").write_text("raise SystemExit('ran')")
    done = verify("train.py", "--plot", file, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def notebook(*texts: str) -> str:
    """A notebook with these code cells."""
    cells = [
        {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for text in texts
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})


@pytest.mark.distributed
def test_the_cells_of_a_notebook_run_as_one_script(tmp_path: Path) -> None:
    texts = [
        "%matplotlib inline\n" + scripts.HEAD,
        scripts.plain().removeprefix(scripts.HEAD),
        "print(loss.item())",
    ]
    (tmp_path / "nb.ipynb").write_text(notebook(*texts))
    done = verify("nb.ipynb", "--steps", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^verdict so far +equal +equal to rounding", done.stdout, re.MULTILINE), done.stdout


def test_places_in_a_notebook_are_those_of_its_cells() -> None:
    before = "# %% cell 1\nimport torch\n# %% cell 4\nmodel = 1\nloss = 2\n"
    after = "# %% cell 1\nimport torch\nimport more\n# %% cell 4\nmodel = 1\nloss = 2\n"
    file = Path("/w/train.ipynb")
    lines = LineMap({file: (before, after)})
    assert lines.named((str(file), 6)) == "train.ipynb cell 4:2"
    assert lines.named_original((str(file), 5)) == "train.ipynb cell 4:2"
    assert LineMap({file: (before, after)}, {}).named((str(file), 6)) == "train.ipynb cell 4:2"
    assert LineMap({}).named_original(("/w/train.py", 5)) == "train.py line 5"
    assert lines.within((str(file), 2), (str(file), 6), (str(file), 6)) == "cells 1:1, 4:2"


SHOWS = """\
alone = "RANK" not in os.environ
print(5 if alone else 6)
open("a" if alone else "b", "w").close()
"""


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            SHOWS,
            [
                "printed figures not comparable (nb.ipynb cell 2:12): ",
                "printed figures different, nb.ipynb cell 3:2: ",
                "a is written by no rank, once in the original (cell 3:3)",
                "b is written by rank 0 (cell 3:3), not in the original",
            ],
        ),
        (
            "if 'RANK' in os.environ:\n    raise ValueError('no')",
            ["exit failed, nb.ipynb cell 3:2: ValueError: no"],
        ),
        ("raise ValueError('no')", ["cell 3:1: ValueError: no"]),
    ],
)
def test_every_message_names_the_cell(last: str, words: list[str], tmp_path: Path) -> None:
    training = scripts.plain().removeprefix(scripts.HEAD) + "        print(loss.item())\n"
    texts = [f"%matplotlib inline\nimport os\n{scripts.HEAD}", training, last]
    (tmp_path / "nb.ipynb").write_text(notebook(*texts))
    done = verify("nb.ipynb", "--steps", "99", "-n", "2", cwd=tmp_path)
    shown = done.stdout + done.stderr
    assert [one for one in words if one not in shown] == [], shown
    assert re.findall(r".*\blines? \d.*", shown) == []


def test_an_option_of_the_scripts_is_asked_for_after_dashes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('data')\n"
        "parser.parse_args()\n" + scripts.plain()
    )
    for words in (["train.py", "--lr", "0.1"], ["--lr", "0.1", "train.py"]):
        done = verify(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert "no such option: --lr" in done.stderr
        assert "`accelify verify train.py -- --lr 0.1`" in done.stderr
    done = verify("-m", "train", "--", "--lr", "0.1", cwd=tmp_path)
    assert "no such option" not in done.stderr
    assert "unrecognized arguments: 0.1" in done.stderr or "--lr" in done.stderr


def test_one_script_at_a_time(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(scripts.plain())
    done = verify("a.py", "b.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "one script at a time" in done.stderr
    assert "`accelify verify b.py`" in done.stderr


@pytest.mark.distributed
def test_a_script_that_wants_arguments_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('data')\n"
        "parser.parse_args()\n" + scripts.plain()
    )
    done = verify("train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "arguments go after --" in done.stderr


def test_gpu_without_devices_is_one_sentence(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there are devices here")
    (tmp_path / "train.py").write_text(scripts.plain())
    done = verify("train.py", "--gpu", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave --gpu out" in done.stderr


def test_without_torch_it_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(scripts.plain())
    code = (
        "import importlib.util, sys; sys.modules['torch'] = None; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "from accelify.cli.main import main; main(['verify', 'train.py'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "torch is not installed" in done.stderr
    assert "bug" not in done.stderr


def test_verify_loads_no_torch_of_its_own() -> None:
    code = (
        "import sys, accelify.verify.session, accelify.verify.show, accelify.verify.nursery, accelify.cli.verify\n"
        "assert 'torch' not in sys.modules and 'rich' not in sys.modules and 'accelify.convert' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.distributed
def test_what_comes_after_the_first_epoch_is_named_with_the_steps_that_reach_it(tmp_path: Path) -> None:
    """Loaders that nothing was taken from and sinks, also of a module; four batches make two steps here."""
    (tmp_path / "more.py").write_text("def save(torch, model):\n    torch.save(model.state_dict(), 'm.pt')\n")
    step = "        if i % 2: opt.step(); opt.zero_grad()\n"
    loop = scripts.LOOP.replace("x, y in loader", "i, (x, y) in enumerate(loader)")
    loop = loop.replace("        opt.zero_grad()\n", "").replace("        opt.step()\n", step)
    held_out = "held_out = torch.utils.data.DataLoader(X)\nmore_data = torch.utils.data.DataLoader(X)\n"
    after = "    for x in held_out: model(x)\n    print(epoch)\n    save(torch, model)\n"
    text = f"from more import save\n{scripts.plain(loop=held_out + 'print(1)' + chr(10) + loop + after)}"
    (tmp_path / "train.py").write_text(text)
    line = text[: text.index("held_out =")].count("\n") + 1
    shown = text.splitlines().index("    print(epoch)") + 1
    for steps, is_cut in ((1, True), (3, False)):
        done = verify("train.py", "--steps", str(steps), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("\nverdict so far " in done.stdout) == is_cut
        said = next((one for one in done.stdout.splitlines() if "not reached:" in one), "")
        assert bool(said) == is_cut
        if is_cut:
            what = (
                f"the loader made in line {line}, the loader made in line {line + 1}, saving (more.py line 2)"
            )
            assert said.endswith(f": {what}, printing (line {shown}); --steps 3 goes beyond it.")


@pytest.mark.distributed
def test_what_is_not_proved_of_a_notebook_is_settled_at_its_cells(tmp_path: Path) -> None:
    training = f"figures = {{}}\n{scripts.plain().removeprefix(scripts.HEAD)}"
    training += "        figures['a'] = figures.get('a', 0) + torch.log10(loss).item()\n"
    cells = [f"%matplotlib inline\n{scripts.HEAD}", training, "print('all', figures)"]
    (tmp_path / "nb.ipynb").write_text(notebook(*cells))
    done = verify("nb.ipynb", "--steps", "99", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 demand not proved or only assumed: 1 violated" in done.stdout
    assert re.search(
        r"violated, nb.ipynb cell 3:1: printed: .*\(cell 2:7\).*: rank 0 [-\d.]+, rank 1", done.stdout
    ), done


@pytest.mark.distributed
def test_the_scripts_and_what_the_processes_are_compared_with_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(scripts.plain())
    (tmp_path / "by_hand.py").write_text(scripts.converted())
    for words, converted, reference in (
        ((), "by `convert --batch-size per-process`", "with 2 of its batches in one"),
        (("--against", "by_hand.py"), "by_hand.py", "as it is"),
    ):
        done = verify("train.py", "--steps", "3", *words, cwd=tmp_path)
        names = f"Original: train.py; converted: {converted}"
        line = f"{names}; 2 processes are compared with the original {reference}."
        assert line in done.stdout.splitlines(), done.stdout + done.stderr
