"""`accelify test`, `accelify env` and `accelify merge-weights`, as a person runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict_saver import save

from accelify.runtime.files import save_weights

ROOT = str(Path(__file__).parents[2])
SEARCH = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))


def accelify(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELIFY_", "ACCELERATE_", "SLURM_"))}
    environment = {
        **clean,
        "HF_HOME": str(cwd / "home"),
        "PYTHONPATH": SEARCH,
        "TMPDIR": str(cwd),
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "accelify", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (["--cpu"], "1 process on cpu, not distributed"),
        (["--cpu", "--mixed_precision", "fp16"], "1 process on cpu, not distributed"),
        (["--cpu", "-n", "2"], "2 processes on cpu, MULTI_CPU"),
        (
            ["--cpu", "-n", "2", "--use_fsdp", "--fsdp_transformer_layer_cls_to_wrap", "Block"],
            "2 processes on cpu, FSDP",
        ),
        (["--cpu", "-n", "2", "--tp_size", "2"], "2 processes on cpu, TP"),
    ],
)
def test_everything_works_here(tmp_path: Path, words: list[str], engine: str) -> None:
    done = accelify("test", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all("  works  " in line for line in lines)
    assert engine in lines[0]
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")]


@pytest.mark.distributed
def test_the_configured_set_up_is_the_one_that_is_tried(tmp_path: Path) -> None:
    file = tmp_path / "home" / "accelerate" / "default_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("use_cpu: true\nnum_processes: 2\nmixed_precision: bf16\n")
    done = accelify("test", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 processes on cpu" in done.stdout
    assert "allowed 5e-02" in done.stdout


@pytest.mark.distributed
def test_what_fails_is_told_and_what_comes_after_is_not_tried(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import torch.optim\n"
        "step = torch.optim.SGD.step\n"
        "torch.optim.SGD.step = lambda self, *a, **k: None if 'RANK' in __import__('os').environ else step(self)\n"
    )
    done = accelify("test", "--cpu", "-n", "2", cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{SEARCH}")
    assert done.returncode == 1
    rows = {line[:33].strip(): line[35:44].strip() for line in done.stdout.splitlines()}
    assert rows["collectives"] == "works"
    assert rows["checkpoint"] == "FAILS"
    assert rows["saved weights load in plain torch"] == "not tried"


def test_bad_options_are_those_of_launch(tmp_path: Path) -> None:
    done = accelify("test", "--cpu", "-n", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "at least 1" in done.stderr


def test_env_says_what_is_here(tmp_path: Path) -> None:
    done = accelify("env", cwd=tmp_path, ACCELIFY_USE_CPU="true", MY_API_TOKEN="secret")
    assert done.returncode == 0, done.stderr
    assert f"- torch: {torch.__version__}" in done.stdout
    assert "gloo" in done.stdout
    assert "    ACCELIFY_USE_CPU=true" in done.stdout
    assert "secret" not in done.stdout
    assert "- configuration: no file at" in done.stdout
    file = tmp_path / "home" / "accelerate" / "default_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("num_processes: 2\n")
    assert accelify("env", cwd=tmp_path).stdout.endswith(f"- configuration: {file}\n    num_processes: 2\n")


SAVE = """\
import sys, torch
from accelify.runtime import Accelerator
accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))
torch.save(model.state_dict(), "plain.pt") if accelerator.is_main_process else None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.save_state("state")
"""


@pytest.mark.distributed
def test_a_sharded_checkpoint_of_a_launch_becomes_one_file(tmp_path: Path) -> None:
    (tmp_path / "save.py").write_text(SAVE)
    options = ["--cpu", "-n", "2", "--use_fsdp", "--fsdp_state_dict_type", "SHARDED_STATE_DICT"]
    done = accelify("launch", *options, "save.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = accelify("merge-weights", "state", "merged", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "merged/model.safetensors is written: 4 tensors, 0.0 MiB.\n"
    merged, plain = load_file(tmp_path / "merged/model.safetensors"), torch.load(tmp_path / "plain.pt")
    assert merged.keys() == plain.keys()
    assert all(torch.equal(merged[name], plain[name]) for name in plain)


def test_folders_of_torch_are_merged_and_several_models_chosen_from(tmp_path: Path) -> None:
    for number in (0, 1):
        weights = {"model": {"a.weight": torch.full((4, 2), float(number))}}
        save(weights, checkpoint_id=tmp_path / f"state/pytorch_model_fsdp_{number}", no_dist=True)
    done = accelify("merge-weights", "state", "all.safetensors", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "accelify: state holds models 0, 1: choose one with --model.\n",
    )
    words = ["--model", "1", "--remove_checkpoint_dir"]
    assert accelify("merge-weights", "state", "all.safetensors", *words, cwd=tmp_path).returncode == 0
    assert torch.equal(load_file(tmp_path / "all.safetensors")["a.weight"], torch.ones(4, 2))
    assert not (tmp_path / "state").exists()


def test_weights_are_not_merged_without_torch(tmp_path: Path) -> None:
    code = (
        "import importlib.util, sys; sys.modules['torch'] = None; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "from accelify.cli.main import main; main(['merge-weights', 'state', 'out'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "accelify: torch is not installed, and no checkpoint can be read without it: `pip"
    )


@pytest.mark.parametrize("safe", [True, False])
def test_weights_that_are_whole_are_copied(safe: bool, tmp_path: Path) -> None:
    for number, name in enumerate(("state", "state/model_1")):
        save_weights({"a": torch.full((3,), float(number))}, tmp_path / name, "1MB", safe)
    done = accelify("merge-weights", "state", "out.safetensors", "--model", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load_file(tmp_path / "out.safetensors")["a"].tolist() == [1.0, 1.0, 1.0]
    done = accelify("merge-weights", "state", "other.safetensors", cwd=tmp_path)
    assert done.stderr == "accelify: state holds models 0, 1: choose one with --model.\n"


def test_merged_weights_replace_no_file_and_are_no_pickle(tmp_path: Path) -> None:
    save_weights({"a": torch.ones(3)}, tmp_path / "state", "1MB", True)
    (tmp_path / "out.safetensors").write_bytes(b"mine")
    done = accelify("merge-weights", "state", "out.safetensors", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "accelify: out.safetensors is there already: delete it, or name another file.\n",
    )
    assert (tmp_path / "out.safetensors").read_bytes() == b"mine"
    done = accelify("merge-weights", "state", "out.pt", cwd=tmp_path)
    assert done.returncode == 2
    assert "the weights become a safetensors file; name out.safetensors, or a folder" in done.stderr
    assert not (tmp_path / "out.pt").exists()


def test_what_is_no_sharded_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "model.safetensors").write_bytes(b"")
    for folder, expected in (
        ("absent", "There is no folder absent."),
        ("whole/model.safetensors", "is a file: name the folder of a checkpoint"),
        ("empty", "give the folder that save_state wrote"),
        ("whole", "is damaged: whole/model.safetensors cannot be read"),
    ):
        done = accelify("merge-weights", folder, "out", cwd=tmp_path)
        assert done.returncode == 2
        assert expected in done.stderr
    weights = {"model": {"a": torch.ones(1000)}}
    save(weights, checkpoint_id=tmp_path / "torn", no_dist=True)
    next((tmp_path / "torn").glob("*.distcp")).write_bytes(b"torn")
    done = accelify("merge-weights", "torn", "out", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert "is damaged" in done.stderr
    assert not (tmp_path / "out").exists()
    assert done.stdout == ""


@pytest.mark.distributed
def test_zero_works_and_its_checkpoint_becomes_one_file(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="the environment without DeepSpeed")
    options = ["--cpu", "-n", "2", "--zero_stage", "2"]
    done = accelify("test", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  works  ") == 6
    loader = "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 8)), batch_size=2)"
    text = SAVE.replace("prepare(model, optimizer)", f"prepare(model, optimizer, {loader})[:2]")
    (tmp_path / "save.py").write_text(text)
    done = accelify("launch", *options, "save.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert accelify("merge-weights", "state", "merged.safetensors", cwd=tmp_path).returncode == 0
    merged, plain = load_file(tmp_path / "merged.safetensors"), torch.load(tmp_path / "plain.pt")
    assert merged.keys() == plain.keys()
    assert all(torch.equal(merged[name], plain[name]) for name in plain)
