"""Checkpoints on disk: whole or not there."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from accelify.runtime import Accelerator, GeneralTracker, ProjectConfiguration, files, load_weights
from accelify.runtime import checkpoint_folders as checkpoint
from accelify.runtime.data import random_state


def _prepared(**kwargs):
    accelerator = Accelerator(cpu=True, **kwargs)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return accelerator, *accelerator.prepare(model, optimizer)


def _automatic(tmp_path, **kwargs):
    config = ProjectConfiguration(tmp_path, automatic_checkpoint_naming=True, **kwargs)
    return _prepared(project_config=config)


def test_automatic_names_and_limit(tmp_path):
    accelerator, model, _ = _automatic(tmp_path, total_limit=2)
    for value in range(4):
        nn.init.constant_(model.weight, value)
        accelerator.save_state()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_2", "checkpoint_3"]
    nn.init.zeros_(model.weight)
    accelerator.load_state()
    assert (model.weight == 3).all()
    accelerator.save_state()
    assert (tmp_path / "checkpoints" / "checkpoint_4").is_dir()


def _full_disk(monkeypatch, after):
    """Writing fails from the `after`-th file on."""
    count = 0
    real = torch.save

    def save(obj, f, *args, **kwargs):
        nonlocal count
        count += 1
        if count > after:
            f.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(obj, f, *args, **kwargs)

    monkeypatch.setattr(torch, "save", save)


@pytest.mark.parametrize("after", [0, 1])
def test_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, after):
    accelerator, model, _ = _automatic(tmp_path, total_limit=1)
    nn.init.ones_(model.weight)
    accelerator.save_state()
    nn.init.zeros_(model.weight)
    with monkeypatch.context() as patch:
        _full_disk(patch, after)
        with pytest.raises(RuntimeError, match="No space left on device"):
            accelerator.save_state()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["checkpoint_0"]
    accelerator.load_state()
    assert (model.weight == 1).all()


class _Recorded(GeneralTracker):
    name = "recorded"
    requires_logging_directory = False
    tracker = None
    finished = False

    def __init__(self):
        pass

    def finish(self):
        self.finished = True


def test_trackers_end_where_the_last_checkpoint_could_not_be_written(tmp_path, monkeypatch):
    tracker = _Recorded()
    accelerator, *_ = _prepared(log_with=tracker)
    accelerator.init_trackers("run")
    _full_disk(monkeypatch, 0)
    accelerator.save_state(tmp_path / "c", asynchronous=True)
    with pytest.raises(RuntimeError, match="No space left on device"):
        accelerator.end_training()
    assert tracker.finished


def test_saving_again_to_one_place_keeps_other_files(tmp_path):
    accelerator, model, _ = _prepared()
    target = tmp_path / "out"
    target.mkdir()
    (target / "log.txt").write_text("mine")
    for value in (1, 2):
        nn.init.constant_(model.weight, value)
        accelerator.save_state(target)
    assert (target / "log.txt").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    nn.init.zeros_(model.weight)
    accelerator.load_state(target)
    assert (model.weight == 2).all()


@pytest.mark.parametrize("step", range(4))
def test_killed_while_replacing(tmp_path, monkeypatch, step):
    """Whatever rename or deletion the process dies at, one whole checkpoint can be loaded."""

    class Killed(BaseException):
        pass

    accelerator, model, _ = _prepared()
    target = tmp_path / "out"
    nn.init.ones_(model.weight)
    accelerator.save_state(target)
    nn.init.constant_(model.weight, 2)
    calls = 0

    def dying(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > step:
                raise Killed
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "replace", dying(os.replace))
        patch.setattr(checkpoint.shutil, "rmtree", dying(checkpoint.shutil.rmtree))
        with pytest.raises(Killed):
            accelerator.save_state(target)
    accelerator.load_state(target)
    assert model.weight.unique().tolist() in ([1.0], [2.0])
    accelerator.save_state(target)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_torn_and_foreign_checkpoints_are_refused(tmp_path):
    accelerator, *_ = _prepared()
    with pytest.raises(ValueError, match="no checkpoint at"):
        accelerator.load_state(tmp_path / "nowhere")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        accelerator.load_state(foreign)
    (foreign / checkpoint.MARKER).write_text("{}")
    with pytest.raises(ValueError, match="not a checkpoint of accelify"):
        accelerator.load_state(foreign)
    accelerator.save_state(tmp_path / "torn")
    with open(tmp_path / "torn" / "optimizer.bin", "r+b") as file:
        file.truncate(10)
    with pytest.raises(ValueError, match="torn: optimizer.bin"):
        accelerator.load_state(tmp_path / "torn")


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    accelerator, *_ = _prepared()
    path = Path(accelerator.save_state(tmp_path / "c"))
    torch.save({"x": Evil()}, path / "optimizer.bin")
    marker = json.loads((path / checkpoint.MARKER).read_text())
    marker["files"]["optimizer.bin"] = (path / "optimizer.bin").stat().st_size
    marker["checksums"]["optimizer.bin"] = files.checksum(path / "optimizer.bin")
    (path / checkpoint.MARKER).write_text(json.dumps(marker))
    with pytest.raises(ValueError, match=r"optimizer\.bin cannot be loaded"):
        accelerator.load_state(path)
    assert not (tmp_path / "evil").exists()


def test_checkpoint_of_other_objects(tmp_path):
    accelerator, *_ = _prepared()
    accelerator.save_state(tmp_path / "c")
    accelerator.register_for_checkpointing(
        torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)]), 1)
    )
    with pytest.raises(ValueError, match=r"holds no custom_checkpoint_0\.pkl"):
        accelerator.load_state(tmp_path / "c")
    with pytest.raises(ValueError, match="state_dict and load_state_dict"):
        accelerator.register_for_checkpointing(3)


def _two():
    models = [nn.Linear(2, 1), nn.Linear(2, 1)]
    return models, [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]


@pytest.mark.parametrize("trains", [True, False])
def test_objects_that_are_prepared_after_load_state(tmp_path, capsys, trains):
    accelerator = Accelerator(cpu=True)
    models, optimizers = _two()
    accelerator.prepare(*models, *optimizers)
    accelerator.save_state(tmp_path / "c")
    accelerator = Accelerator(cpu=True)
    models, optimizers = _two()
    accelerator.prepare(models[0], *(optimizers[:1] if trains else ()))
    accelerator.load_state(tmp_path / "c")
    said = (
        "also holds model_1, optimizer_1.bin, for which nothing was prepared or registered before load_state"
    )
    assert (said in capsys.readouterr().out) is trains


def test_an_open_window_of_other_parameters(tmp_path):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    models, optimizers = _two()
    models = accelerator.prepare(*models, *optimizers)[:2]
    with accelerator.accumulate(*models):
        accelerator.backward(sum(m(torch.ones(1, 2)).sum() for m in models))
    accelerator.save_state(tmp_path / "c")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    models, optimizers = _two()
    accelerator.prepare(models[0], optimizers[0])
    with pytest.raises(ValueError, match="holds gradients of 4 parameters .* prepared here train 2: prepare"):
        accelerator.load_state(tmp_path / "c")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight


@pytest.mark.parametrize("safe", [True, False])
def test_sharded_weights_come_back(tmp_path, safe):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tied())
    accelerator.save_model(model, tmp_path, max_shard_size="100B", safe_serialization=safe)
    assert len(list(tmp_path.glob("*-of-*"))) > 1
    assert len(list(tmp_path.glob("*.index.json"))) == 1
    other = Tied()
    load_weights(other, tmp_path)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    accelerator.save_model(model, tmp_path, safe_serialization=safe)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match="do not fit Linear"):
        load_weights(nn.Linear(2, 2), tmp_path)


def test_hooks(tmp_path):
    accelerator, model, _ = _prepared()

    def only_a_note(models, weights, output_dir):
        assert models == [model]
        weights.pop()
        (Path(output_dir) / "note.txt").write_text("hook")

    handle = accelerator.register_save_state_pre_hook(only_a_note)
    accelerator.save_state(tmp_path / "c")
    assert (tmp_path / "c" / "note.txt").read_text() == "hook"
    assert not (tmp_path / "c" / "model.safetensors").exists()
    accelerator.register_load_state_pre_hook(lambda models, input_dir: models.pop())
    accelerator.load_state(tmp_path / "c")
    handle.remove()
    accelerator.save_state(tmp_path / "d")
    assert (tmp_path / "d" / "model.safetensors").exists()


def test_save_is_atomic(tmp_path, monkeypatch):
    accelerator = Accelerator(cpu=True)
    path = tmp_path / "x.pt"
    accelerator.save({"a": torch.ones(2)}, path)
    with monkeypatch.context() as patch:
        _full_disk(patch, 0)
        with pytest.raises(OSError, match="No space"):
            accelerator.save({"a": torch.zeros(2)}, path)
    assert torch.equal(torch.load(path, weights_only=True)["a"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~files._umask()


@pytest.mark.parametrize("size", ["10 apples", "", "GB", "-1GB"])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="a size is written like"):
        files.size_in_bytes(size)
    assert files.size_in_bytes("1.5KB") == 1500


@pytest.mark.parametrize(("gpus", "set_on"), [(1, [0]), (2, [0, 1]), (3, [0, 1])])
def test_random_states_of_a_machine_with_other_gpus(monkeypatch, gpus, set_on):
    given = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: given.append((device, int(state))))
    random_state.restore_random_state({"cuda": [torch.tensor(10), torch.tensor(11)]})
    assert given == [(device, 10 + device) for device in set_on]
