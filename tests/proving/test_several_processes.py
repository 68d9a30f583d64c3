"""Scripts that are written for several processes: right ones are quiet, and each hazard is named in its line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from accelify.conversion import ConvertOptions
from accelify.convert import convert_project
from accelify.project import Imports
from accelify.proving import checked
from accelify.source import Source

FOLDER = Path(__file__).parent / "several_processes"
ACCELERATED = (FOLDER / "with_accelerator.py").read_text()
GROUPED = (FOLDER / "with_process_group.py").read_text()


def rows_of(name, table="hazard"):
    """The changes that a file describes, by name."""
    rows = tomllib.loads((FOLDER / f"{name}.toml").read_text())[table]
    return [pytest.param(row, id=row["name"]) for row in rows]


def findings(text, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)
    return checked(convert_project(Source.read(path), ConvertOptions(), Imports())[0])


def of_runtime(text):
    return text.replace("from accelerate import", "from accelify.runtime import").replace(
        "from accelerate.utils import", "from accelify.runtime import"
    )


@pytest.mark.parametrize(
    "text", [ACCELERATED, of_runtime(ACCELERATED), GROUPED], ids=["accelerate", "accelify", "torch"]
)
def test_right_scripts_are_quiet(text, tmp_path):
    assert findings(text, tmp_path) == []


def changed(script, row):
    for change in row["changes"]:
        assert change["old"] in script
        script = script.replace(change["old"], change["new"])
    return script


@pytest.mark.parametrize("form", rows_of("right_forms", "form"))
def test_other_right_forms_are_quiet(form, tmp_path):
    assert findings(changed(GROUPED, form), tmp_path) == []


@pytest.mark.parametrize("form", rows_of("accelerated_forms", "form"))
def test_other_right_forms_beside_an_accelerator_are_quiet(form, tmp_path):
    assert findings(changed(ACCELERATED, form), tmp_path) == []


def named(hazard, script, tmp_path):
    script = changed(script, hazard)
    lines = script.splitlines()
    found = findings(script, tmp_path)
    numbers = {one.line for one in found}
    for one in found:
        also = re.search(r"the same at lines? ([\d, ]+)", one.message)
        numbers |= {int(number) for number in also[1].split(", ")} if also else set()
    assert any(part in lines[number - 1] for number in numbers for part in hazard["lines"]), found


@pytest.mark.parametrize("hazard", rows_of("with_accelerator"))
def test_hazards_beside_an_accelerator(hazard, tmp_path):
    named(hazard, ACCELERATED, tmp_path)


@pytest.mark.parametrize(
    ("precision", "steps", "once"), [("no", True, True), ("fp16", True, False), ("no", False, False)]
)
def test_a_scaler_of_the_script_scales_where_the_accelerator_does_not(precision, steps, once, tmp_path):
    text = ACCELERATED.replace('mixed_precision="fp16"', f'mixed_precision="{precision}"')
    text = text.replace("    best = 0.0\n", "    best = 0.0\n    scaler = torch.amp.GradScaler()\n")
    text = text.replace("accelerator.backward(loss)", "accelerator.backward(scaler.scale(loss))")
    if steps:
        text = text.replace("optimizer.step()", "scaler.step(optimizer)\n                scaler.update()")
    found = [one.message for one in findings(text, tmp_path)]
    assert any("`GradScaler` works beside" in one for one in found) is not once


# What the runtime itself takes care of: shares without filling, attributes of wrapped models, seeds, schedules.
ACCELERATES_ALONE = frozenset(
    {
        "duplicates counted",
        "per-epoch scheduler prepared",
        "split that differs",
        "attribute of wrapped model",
        "wrapped weights",
        "an attribute of the model after another class has left",
        "a gather that nothing cuts",
        "a tracker that the others do not have",
        "the main process goes through a loader that shuffles for all",
        "a barrier after the group is left",
        "whole wrapped model",
    }
)


@pytest.mark.parametrize(
    "hazard", [one for one in rows_of("with_accelerator") if one.id not in ACCELERATES_ALONE]
)
def test_hazards_beside_the_runtime(hazard, tmp_path):
    named(hazard, of_runtime(ACCELERATED), tmp_path)


@pytest.mark.parametrize("hazard", rows_of("with_process_group"))
def test_hazards_in_a_process_group(hazard, tmp_path):
    named(hazard, GROUPED, tmp_path)


def test_a_plain_script_is_none_of_them(tmp_path):
    assert findings("import torch\nprint(torch.ones(1))\n", tmp_path) is None


@pytest.mark.parametrize(("size", "named"), [("world_size=1", False), ("world_size=2", True)])
def test_a_group_of_one_process_is_none_of_several(size, named, tmp_path):
    text = GROUPED.replace('init_process_group("nccl")', f'init_process_group("nccl", rank=0, {size})')
    text = text.replace("    best = 0.0\n", '    best = 0.0\n    print("begins")\n')
    assert bool(findings(text, tmp_path)) is named


@pytest.mark.parametrize(
    ("made", "number"),
    [
        ('LibriMix("corpus", "train-360")', 0),
        ('LIBRISPEECH("corpus", download=True)', 1),
        ('clip.load("ViT-B/32")', 1),
        ("clip.tokenize(['a text'])", 0),
        (
            'urlopen("http://localhost/size").info()',
            1,
        ),  # the download; what is asked of its answer logs nothing
    ],
)
def test_what_downloads_and_what_does_not(made, number, tmp_path):
    imports = "import clip\nfrom torchaudio.datasets import LIBRISPEECH, LibriMix\nfrom urllib.request import urlopen\n"
    text = (imports + GROUPED).replace("    best = 0.0\n", f"    best = 0.0\n    made = {made}\n")
    assert len(findings(text, tmp_path)) == number


def test_a_barrier_after_a_state_that_the_main_process_saves_is_named_by_itself(tmp_path):
    (row,) = (one.values[0] for one in rows_of("with_accelerator") if one.id == "save_state under main")
    text = changed(ACCELERATED, row)
    (line,) = (one for one in text.splitlines() if "accelerator.save_state(args.out)" in one)
    wait = line.replace("save_state(args.out)", "wait_for_everyone()")
    text = text.replace(f"{line}\n", f"{line}\n{wait}\n")
    found = {
        text.splitlines()[one.line - 1].strip() for one in findings(text, tmp_path) if one.code == "ACC704"
    }
    assert found == {line.strip(), wait.strip()}
