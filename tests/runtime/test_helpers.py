import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from accelify.runtime import (
    Accelerator,
    GeneralTracker,
    LocalSGD,
    ProfileKwargs,
    collectives,
    find_executable_batch_size,
    get_logger,
    release_memory,
    set_seed,
)
from accelify.runtime.data import random_state


def test_batch_size_shrinks_until_it_fits():
    tried = []

    @find_executable_batch_size(starting_batch_size=100)
    def train(batch_size, fits):
        tried.append(batch_size)
        if batch_size > fits:
            raise RuntimeError("CUDA out of memory. Tried to allocate")
        return batch_size

    assert train(75) == 72
    assert tried == [100, 90, 81, 72]
    halved = find_executable_batch_size(train.__wrapped__, 8, lambda size: size // 2)
    with pytest.raises(RuntimeError, match="no batch size from 8 down fits"):
        halved(0)
    with pytest.raises(TypeError, match="gets its batch size by itself"):
        train(3, 4)


def test_other_errors_are_not_swallowed():
    @find_executable_batch_size(starting_batch_size=4, reduce_batch_size_fn=lambda n: n // 2)
    def train(batch_size):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        train()


def test_profile_leaves_a_trace(tmp_path):
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path))]
    )
    with accelerator.profile() as profiler:
        nn.Linear(3, 3)(torch.ones(2, 3))
    assert "aten::linear" in {e.key for e in profiler.key_averages()}
    assert json.loads((tmp_path / "profile_0.json").read_text())["traceEvents"]
    with (
        pytest.raises(ValueError, match="activities of the profiler"),
        accelerator.profile(ProfileKwargs(activities=["tpu"])),
    ):
        pass


def test_logger(caplog):
    Accelerator(cpu=True)
    logger = get_logger("here", log_level="INFO")
    logger.info("one %s", "thing")
    logger.info("in turn", in_order=True)
    logger.warning_once("once")
    logger.warning_once("once")
    assert [r.getMessage() for r in caplog.records] == ["one thing", "in turn", "once"]
    assert caplog.records[0].funcName == "test_logger"
    logging.getLogger().setLevel(logging.WARNING)


def test_seed_and_release():
    set_seed(3)
    a = torch.rand(2)
    set_seed(3)
    assert torch.equal(a, torch.rand(2))
    assert release_memory(a, a) == [None, None]


def test_local_sgd_on_one_process():
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ValueError, match="at least 1"):
        LocalSGD(accelerator, nn.Linear(1, 1), 0)
    with LocalSGD(accelerator, nn.Linear(1, 1), 2) as local:
        local.step()


def test_tensorboard(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run", config={"lr": 0.1, "name": "x", "layers": [1, 2]})
    for step in range(3):
        accelerator.log({"loss": 1.0 / (step + 1), "note": "text", "both": {"a": 1.0, "b": 2.0}}, step=step)
    accelerator.get_tracker("tensorboard", unwrap=True).add_scalar("own", 5.0)
    accelerator.end_training()
    events = event_accumulator.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert [e.value for e in events.Scalars("loss")] == pytest.approx([1.0, 0.5, 1 / 3])
    assert events.Scalars("own")[0].value == 5.0
    with pytest.raises(ValueError, match="no tracker 'wandb' was started"):
        accelerator.get_tracker("wandb")


def test_tensorboard_needs_a_directory():
    with pytest.raises(ValueError, match="needs a directory"):
        Accelerator(cpu=True, log_with="tensorboard").init_trackers("run")


class Memory(GeneralTracker):
    name = "memory"

    def __init__(self):
        self.seen = []

    def store_init_configuration(self, values):
        self.seen.append(values)

    def log(self, values, step=None, **kwargs):
        self.seen.append((values, step, kwargs))

    def finish(self):
        self.seen.append("end")


def test_tracker_of_ones_own():
    tracker = Memory()
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("run", {"a": 1})
    accelerator.log({"x": 2}, step=3, log_kwargs={"memory": {"k": 4}})
    assert accelerator.get_tracker("memory") is tracker
    accelerator.end_training()
    assert tracker.seen == [{"a": 1}, ({"x": 2}, 3, {"k": 4}), "end"]


def test_wandb_offline(tmp_path):
    pytest.importorskip("wandb")
    accelerator = Accelerator(cpu=True, log_with="wandb", project_dir=tmp_path)
    accelerator.init_trackers("run", {"lr": 0.1}, init_kwargs={"wandb": {"mode": "offline"}})
    accelerator.log({"loss": 1.0}, step=0)
    tracker = accelerator.get_tracker("wandb")
    tracker.log_table("samples", columns=["text"], data=[["a"], ["b"]], step=1)
    tracker.log_images({"noise": [np.zeros((4, 4, 3), dtype=np.uint8)]}, step=2)
    accelerator.end_training()
    assert list(tmp_path.rglob("*.wandb"))
    assert [p.name.partition("_")[0] for p in tmp_path.rglob("media/table/*")] == ["samples"]
    assert [p.name.partition("_")[0] for p in tmp_path.rglob("media/images/*")] == ["noise"]


def test_mlflow_on_a_local_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    accelerator = Accelerator(cpu=True, log_with="mlflow", project_dir=tmp_path)
    accelerator.init_trackers("run", {"lr": 0.1})
    accelerator.log({"loss": 0.5}, step=2)
    (tmp_path / "more").mkdir()
    for name in ("notes.txt", "more/others.txt"):
        (tmp_path / name).write_text("x")
    tracker = accelerator.get_tracker("mlflow")
    tracker.log_artifact(str(tmp_path / "notes.txt"))
    tracker.log_artifacts(str(tmp_path / "more"), "more")
    run = accelerator.get_tracker("mlflow", unwrap=True).info.run_id
    accelerator.end_training()
    found = mlflow.artifacts.list_artifacts(run_id=run)
    assert {entry.path for entry in found} == {"notes.txt", "more"}
    data = mlflow.get_run(run).data
    assert data.metrics["loss"] == 0.5
    assert data.params["lr"] == "0.1"


def test_behind_a_pass_the_gpu_draws_as_rank_0_too(monkeypatch):
    """Weights that a script draws anew for its next fold are the same on every rank."""
    given = torch.full((16,), 7, dtype=torch.uint8)
    put: list[tuple[torch.Tensor, torch.device]] = []
    here = SimpleNamespace(device=torch.device("cuda:1"), is_main_process=False)
    monkeypatch.setattr(random_state, "PartialState", lambda: here)
    monkeypatch.setattr(collectives, "broadcast_tensors", lambda tensors: tensors[2].copy_(given))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.zeros(16, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: put.append((state, device)))
    random_state.rejoin(random_state.open_pass(None))
    assert [(state.tolist(), device) for state, device in put] == [(given.tolist(), here.device)]


def test_unseeded_scripts_draw_the_same_on_the_gpus_too(monkeypatch):
    """torch seeds the GPU's generator from the system, in every process another way."""
    put: list[tuple[torch.Tensor, torch.device]] = []
    sent: list[dict[str, object]] = []
    own = torch.full((16,), 7, dtype=torch.uint8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [own * 2, own])
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: own)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: put.append((state, device)))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: pytest.fail("one device is its own"))
    monkeypatch.setattr(collectives, "broadcast_object", lambda state: sent.append(state) or dict(sent[0]))
    for index in (0, 1):
        here = SimpleNamespace(device=torch.device("cuda", index), is_main_process=index == 0)
        monkeypatch.setattr(random_state, "PartialState", lambda here=here: here)
        random_state.share_random_state()
    assert [(state.tolist(), device) for state, device in put] == [(own.tolist(), torch.device("cuda:1"))]
    cpu = SimpleNamespace(device=torch.device("cpu"), is_main_process=False)
    monkeypatch.setattr(random_state, "PartialState", lambda: cpu)
    random_state.share_random_state()
    assert len(put) == 1
