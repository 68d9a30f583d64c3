"""Every file of a checkpoint damaged in every way: one sentence on every rank, nothing is run, nothing is lost."""

import json
import os
import pickle
import shutil
import zlib

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime import checkpoint_folders
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed

FILES = (
    "model.safetensors",
    "optimizer.bin",
    "scheduler.bin",
    "custom_checkpoint_0.pkl",
    "random_states_1.pkl",
    "window_1.pkl",
)


class _Counter:
    count = 3

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def _prepared():
    torch.manual_seed(0)
    accelerator = fresh_accelerator(gradient_accumulation_steps=4)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=2, shuffle=True)
    accelerator.register_for_checkpointing(_Counter())
    return accelerator, *accelerator.prepare(model, optimizer, scheduler, loader)


def _save(directory):
    accelerator, model, optimizer, scheduler, loader = _prepared()
    for number, (x,) in enumerate(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(x).square().sum())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if number == 4:
            # Within a window, and behind a step.
            accelerator.save_state(directory)
            return


def _load(directory):
    accelerator, model, *_ = _prepared()
    with torch.no_grad():
        model_weight = accelerator.unwrap_model(model).weight.clone()
    accelerator.load_state(directory)
    return not torch.equal(model_weight, accelerator.unwrap_model(model).weight)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c"
    run_ranks(2, _save, str(path))
    assert run_ranks(2, _load, str(path)) == [True, True]
    assert set(FILES) <= {p.name for p in path.iterdir()}
    return path


@pytest.fixture
def damaged(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "c")
    return tmp_path / "c"


def _refused(directory, *words):
    for rank, outcome in enumerate(try_ranks(2, _load, str(directory))):
        assert outcome.error is not None, f"rank {rank} loaded it"
        last = outcome.error.strip().splitlines()[-1]
        assert last.startswith("ValueError"), last
        assert any(word in last for word in words), last


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit(damaged, name):
    contents = bytearray((damaged / name).read_bytes())
    contents[len(contents) // 2] ^= 4
    (damaged / name).write_bytes(contents)
    _refused(damaged, f"is damaged: {name} is not what was written")


@pytest.mark.parametrize("name", [*FILES, checkpoint_folders.MARKER])
def test_torn(damaged, name):
    contents = (damaged / name).read_bytes()
    (damaged / name).write_bytes(contents[: len(contents) // 2])
    _refused(damaged, f"is torn: {name}", "cannot be read")


@pytest.mark.parametrize("name", [*FILES, checkpoint_folders.MARKER])
def test_missing(damaged, name):
    (damaged / name).unlink()
    _refused(damaged, f"is torn: {name}", "is not a complete checkpoint")


class _Runs:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("form", ["torch", "pickle"])
@pytest.mark.parametrize("name", FILES[1:])
def test_hostile(damaged, tmp_path, name, form):
    attack = _Runs(f"touch {tmp_path}/ran")
    path = damaged / name
    if form == "torch":
        torch.save(attack, path)
    else:
        path.write_bytes(pickle.dumps(attack))
    # Who can write a file can make the marker fit.
    marker = damaged / checkpoint_folders.MARKER
    facts = json.loads(marker.read_text())
    facts["files"][name] = path.stat().st_size
    facts["checksums"][name] = zlib.crc32(path.read_bytes())
    marker.write_text(json.dumps(facts))
    outcomes = try_ranks(2, _load, str(damaged))
    assert any(outcome.error and "cannot be loaded" in outcome.error for outcome in outcomes)
    assert not any(outcome.ok for outcome in outcomes)
    assert not (tmp_path / "ran").exists()


def test_an_index_that_names_files_elsewhere(damaged):
    elsewhere = damaged.parent / "other.safetensors"
    shutil.move(damaged / "model.safetensors", elsewhere)
    index = damaged / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "../other.safetensors"}}))
    marker = damaged / checkpoint_folders.MARKER
    facts = json.loads(marker.read_text())
    del facts["files"]["model.safetensors"]
    marker.write_text(json.dumps(facts))
    _refused(damaged, "names files of other directories")


def _load_a_copy(directory):
    """As where every machine has copied the checkpoint to a disk of its own."""
    os.chdir(f"{directory}/{os.environ['RANK']}")
    return _load("c")


@pytest.fixture
def copies(saved, tmp_path):
    for rank in range(2):
        shutil.copytree(saved, tmp_path / str(rank) / "c")
    return tmp_path


def test_a_copy_for_each_rank(copies):
    assert run_ranks(2, _load_a_copy, str(copies)) == [True, True]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.bin", checkpoint_folders.MARKER])
def test_a_copy_of_one_rank_that_is_damaged(copies, name):
    path = copies / "1" / "c" / name
    contents = bytearray(path.read_bytes())
    if name == checkpoint_folders.MARKER:
        contents += b" "  # that of another checkpoint, in all other files of the same sizes
    else:
        contents[len(contents) // 2] ^= 4
    path.write_bytes(contents)
    word = "another checkpoint here" if name == checkpoint_folders.MARKER else f"is damaged: {name}"
    for outcome in try_ranks(2, _load_a_copy, str(copies)):
        last = outcome.error.strip().splitlines()[-1]
        assert last.startswith("ValueError: rank 1: "), last
        assert word in last
