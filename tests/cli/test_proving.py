"""What the engine does not prove of a conversion, as findings of `accelify convert`."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_paths
from accelify.findings import Finding
from accelify.proving import prove
from accelify.proving.rules import rule_of
from tests.cli.conftest import PLAIN, Run

HEAD = """\
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

data = torch.randn(64, 4)
loader = DataLoader(TensorDataset(data), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    figures = {}
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        figures["a"] = figures.get("a", 0) + torch.log10(loss).item()
        print("step", loss.item())
"""
UNPROVED = HEAD + '    print("epoch", figures)\n    print("again", figures)\nos.system("ls")\n'
HELPER = """\
import os


def listed(folder):
    os.system("ls " + folder)
    os.system("ls -l " + folder)
"""


def _converted(run: Run, script: Path, *options: str) -> dict[str, Any]:
    outcome = run("convert", "--json", "--diff", *options, script)
    files = json.loads(outcome.out)["files"]
    found: dict[str, Any] = next(file for file in files if file["file"] == str(script))
    return found


def _script(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    return script


def test_a_figure_that_is_not_proved_is_a_finding_with_its_chain(run: Run, tmp_path: Path) -> None:
    script = _script(tmp_path, UNPROVED)
    found = [one for one in _converted(run, script)["remaining"] if one["code"] == "ACC701"]
    assert [(one["file"], one["line"], one["column"]) for one in found] == [(str(script), 18, 5)]
    message = found[0]["message"]
    # The steps, the last one first, with lines of the original; the other figure for the same cause goes with it.
    assert '`figures.get("a", 0) + torch.log10(loss).item()` (line 16)' in message
    assert message.index("(line 16)") < message.index("this rank's batch of `loader` (line 11)")
    assert message.endswith("; the same at line 19")
    assert any("`torch.log10(loss)` (line 16)" in step for step in found[0]["evidence"])
    assert found[0]["safety"] == "manual"


def test_it_stands_in_the_summary_and_on_the_page(run: Run, tmp_path: Path) -> None:
    script, page = _script(tmp_path, UNPROVED), tmp_path / "page.html"
    outcome = run("convert", script, "--report", page)
    assert outcome.code == 1
    lines = dict(enumerate(script.read_text().split("\n"), 1))
    places = re.findall(rf"{script}:(\d+):\d+: (ACC70[12]) ([^\n:]*)", outcome.out)
    assert [(code, text, lines[int(line)].strip()) for line, code, text in places] == [
        ("ACC701", "what is printed covers the main process's share", 'accelerator.print("epoch", figures)'),
        ("ACC702", "every process runs this command", 'os.system("ls")'),
    ]
    assert "ACC701" in page.read_text()


def test_what_a_loop_shows_is_one_line(run: Run, tmp_path: Path) -> None:
    script = _script(tmp_path, UNPROVED)
    note = "some figures are shown inside the training loop, of the main process's own batches (line 17); no change"
    note += " is needed"
    assert _converted(run, script)["notes"] == [note]
    told = re.search(re.escape(note).replace("17", r"(\d+)"), run("convert", script).out)
    assert told is not None
    assert (
        script.read_text().split("\n")[int(told[1]) - 1].strip() == 'accelerator.print("step", loss.item())'
    )


@pytest.mark.parametrize("lines", ["print(loss.item())", "for again in range(2):\n    print(loss.item())"])
def test_what_is_shown_after_the_loop_is_not_said_to_be_inside(run: Run, tmp_path: Path, lines: str) -> None:
    script = _script(tmp_path, f"{PLAIN}{lines}\n")
    (note,) = _converted(run, script)["notes"]
    assert note.startswith(
        "some figures are shown after the loop over batches, of one batch, that of the main process (line"
    )


def test_a_script_of_which_all_is_proved_has_no_finding(run: Run, tmp_path: Path) -> None:
    found = _converted(run, _script(tmp_path, PLAIN))
    assert found["status"] == "converted"
    assert found["remaining"] == []


def test_what_is_named_already_is_not_named_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def shown(text):\n    print(text)\n    return text\n")
    text = HEAD.replace("import os\n", "from helper import shown\n") + 'name = shown("done")\n'
    found = _converted(run, _script(tmp_path, text))["remaining"]
    by_all = [one for one in found if "helper.py" in one["file"] or "helper.py" in one["message"]]
    assert [(one["code"], one["severity"]) for one in by_all] == [("ACC702", "info")]


def test_a_module_that_is_not_converted_is_named_by_its_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    text = HEAD.replace("import os\n", "from helper import listed\n") + 'listed(".")\n'
    found = [one for one in _converted(run, _script(tmp_path, text))["remaining"] if one["code"] == "ACC702"]
    assert [(Path(one["file"]).name, one["line"]) for one in found] == [("helper.py", 5)]
    assert found[0]["message"].endswith("; the same at line 6")


def test_a_finding_of_which_the_contrary_is_proved_goes(run: Run, tmp_path: Path) -> None:
    script = _script(tmp_path, PLAIN)
    conversion = convert_paths([script], ConvertOptions())[0]
    line = PLAIN.split("\n").index("    print(epoch, loss.item())  # the last batch's") + 1
    once = Finding(str(script), line, 5, "ACC201", "print", "every process would print this")
    figure = Finding(str(script), line, 5, "ACC307", "own-table", "`loss` covers one process's share")
    conversion.remaining = [once, figure]
    prove([conversion], conversion)
    # That it is printed once is proved; what is printed is the main process's.
    assert conversion.remaining == [figure]


def test_that_it_is_done_once_settles_no_race(tmp_path: Path) -> None:
    script = _script(tmp_path, PLAIN)
    conversion = convert_paths([script], ConvertOptions())[0]
    line = PLAIN.split("\n").index("    print(epoch, loss.item())  # the last batch's") + 1
    early = "the main process may make this folder before the others have asked whether it is there"
    conversion.remaining = [Finding(str(script), line, 5, "ACC203", "file-write", early)]
    prove([conversion], conversion)
    assert [one.message for one in conversion.remaining] == [early]


def test_a_budget_that_is_used_up_is_said(tmp_path: Path) -> None:
    conversion = convert_paths([_script(tmp_path, UNPROVED)], ConvertOptions())[0]
    prove([conversion], conversion, budget=9)
    assert [note for note in conversion.notes if note.startswith("not read further: the budget")]
    said = "what these lines show or do is not proved, nor what they call: lines? ([\\d, -]+)"
    (spans,) = [found[1] for note in conversion.notes if (found := re.fullmatch(said, note))]
    assert spans == f"8-{len(UNPROVED.splitlines())}"


def test_a_notebook_is_gone_through_cell_by_cell(run: Run, tmp_path: Path) -> None:
    top, _, rest = UNPROVED.partition("for epoch")
    cells = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
        for source in (top, f"for epoch{rest}")
    ]
    notebook = tmp_path / "train.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    found = [one for one in _converted(run, notebook)["remaining"] if one["code"] == "ACC701"]
    assert [(one["cell"], one["line"]) for one in found] == [(2, 10)]
    assert "(cell 2:8)" in found[0]["message"]
    assert found[0]["message"].endswith("; the same at cell 2:11")


def test_check_names_it_too(run: Run, tmp_path: Path) -> None:
    outcome = run("check", _script(tmp_path, UNPROVED))
    assert outcome.code == 1
    assert "train.py:18:5: ACC701 what is printed " in outcome.out


def test_means_over_batches_are_one_line(run: Run, tmp_path: Path) -> None:
    total = HEAD.replace(
        'figures["a"] = figures.get("a", 0) + torch.log10(loss).item()', "total += loss.item()"
    )
    total = total.replace("    figures = {}\n", "    total = 0.0\n") + "    print(total / len(loader))\n"
    note = "averages over batches (line 11): a short last batch counts as much as a full one"
    assert any(note in one for one in _converted(run, _script(tmp_path, total))["notes"])
    exact = total.replace("loss.item()\n", "loss.item() * len(x)\n").replace("len(loader))", "64)")
    assert not any("counts as much" in one for one in _converted(run, _script(tmp_path, exact))["notes"])


@pytest.mark.parametrize(
    ("made", "update"),
    [
        ("copy.deepcopy(model)", "with torch.no_grad():\n        for a, b in zip(ema.parameters(), model.parameters()):"
         "\n            a.mul_(0.9).add_(b, alpha=0.1)"),
        ("torch.optim.swa_utils.AveragedModel(model)", "ema.update_parameters(model)"),
    ],
)  # fmt: skip
def test_averages_of_weights_are_noted_where_each_step_of_fewer_updates_them(
    run: Run, tmp_path: Path, made: str, update: str
) -> None:
    """Not where each step is one of the original's, nor of what an epoch updates."""
    text = HEAD.replace("for epoch", f"import copy\nema = {made}\nfor epoch", 1)
    by_step = text + "".join(f"        {line}\n" for line in update.replace("\n    ", "\n").split("\n"))
    by_epoch = text + "".join(f"    {line}\n" for line in update.replace("\n    ", "\n").split("\n"))
    note = "weights that each step changes beside the optimizer (line "
    for script, options, noted in (
        (by_step, (), True),
        (by_step, ("--batch-size", "total"), False),
        (by_epoch, (), False),
    ):
        found = _converted(run, _script(tmp_path, script), *options)["notes"]
        assert any(one.startswith(note) for one in found) == noted, script


def test_every_demand_has_its_rule() -> None:
    folder = Path(__file__).parents[2] / "accelify" / "obligations"
    made = [
        node
        for name in ("sinks.py", "ordering.py", "distributed_scripts.py")
        for node in ast.walk(ast.parse((folder / name).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    demands = {
        node.args[number].value
        for node in made
        if (number := {"made": 1, "Obligation": 1, "_named": 3}.get(node.func.id)) is not None
        if len(node.args) > number and isinstance(node.args[number], ast.Constant)
    }
    assert "content" in demands
    assert "order" in demands
    assert all(rule_of(demand).code.startswith("ACC7") for demand in demands)


def test_modules_of_which_nothing_is_known_are_said(run: Run, tmp_path: Path) -> None:
    text = "import absent_module.part\nfrom other_absent import augment\nimport json, numpy, helper\n" + HEAD
    (tmp_path / "helper.py").write_text("import torch\n")
    (note,) = [one for one in _converted(run, _script(tmp_path, text))["notes"] if one.startswith("not read")]
    assert note.endswith("absent_module, other_absent (see docs/models.md)")


def test_a_module_that_is_no_python_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def f(:\n")
    notes = _converted(run, _script(tmp_path, f"import helper\n{HEAD}"))["notes"]
    assert any(one.startswith("not read further: ") and "helper.py, line 1" in one for one in notes)


def test_warnings_of_every_process_are_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "import warnings\n\ndef f(x):\n    warnings.warn('old')\n    return x\n"
    )
    found = _converted(run, _script(tmp_path, f"from helper import f\n{HEAD}f(f(1))\n"))
    assert "warnings that every process gives: helper.py:4" in found["notes"]
    assert not [one for one in found["remaining"] if "warn" in one["message"]]


def test_what_the_silenced_loggers_let_through_is_in_that_line(run: Run, tmp_path: Path) -> None:
    log = "import logging\nlogging.basicConfig(level=logging.INFO)\nlogger = logging.getLogger('a')\n"
    lines = "logger.info('begins')\nlogger.warning('no cache')\n"
    found = _converted(run, _script(tmp_path, f"{log}{HEAD}{lines}"))
    (note,) = [one for one in found["notes"] if one.startswith("warnings")]
    assert note == f"warnings that every process gives: line {(log + HEAD).count(chr(10)) + 2}"
    assert not [one for one in found["remaining"] if one["code"] == "ACC702"]


def test_a_script_that_python_warns_of_is_converted_quietly(run: Run, tmp_path: Path) -> None:
    outcome = run("convert", _script(tmp_path, HEAD + "assert (model, 'a model')\n"))
    assert not outcome.err


MODULE = """\
import torch


def fit(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("last", loss.item())


def trial(model, loader):
    for (x,) in loader:
        model(x).mean().backward()
    with open("trial.txt", "a") as file:
        file.write("tried")
"""
STARTS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

from loops import fit

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
model = torch.nn.Linear(4, 1)
fit(model, loader)
"""
GUARD = '\n\nif __name__ == "__main__":\n    net = torch.nn.Linear(4, 1)\n    trial(net, [(torch.randn(8, 4),)] * 4)\n'


@pytest.mark.parametrize("started", [False, True], ids=["module", "started"])
def test_a_module_that_a_script_imports_is_an_entry_only_where_it_is_started(
    run: Run, tmp_path: Path, started: bool
) -> None:
    (tmp_path / "loops.py").write_text(MODULE + GUARD * started)
    (tmp_path / "train.py").write_text(STARTS)
    outcome = run("convert", "--diff", "--assumptions", tmp_path)
    assert re.search(r"train\.py: \d+ demands", outcome.err)
    assert bool(re.search(r"loops\.py: \d+ demands", outcome.err)) is started
    assert ("every process writes a file here" in outcome.err) is started
