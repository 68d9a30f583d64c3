"""Checkpoints that were damaged, that would run something, or that ranks see differently."""

import os
import pickle
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from accelify.runtime import FullyShardedDataParallelPlugin, ProjectConfiguration
from accelify.runtime import checkpoint_folders as checkpoint
from accelify.runtime.launch.merge import merge
from accelify.runtime.launch.settings import LaunchError
from tests.distributed.processes import fresh_accelerator, run_ranks, try_ranks

pytestmark = pytest.mark.distributed


def _prepared(**kwargs):
    torch.manual_seed(0)
    accelerator = fresh_accelerator(**kwargs)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    return accelerator, model


def _sharded(directory, load=False):
    plugin = FullyShardedDataParallelPlugin(state_dict_type="SHARDED_STATE_DICT")
    accelerator, model = _prepared(fsdp_plugin=plugin)
    accelerator.backward(model(torch.ones(2, 4)).sum())
    accelerator._optimizers.settled()[0].step()
    (accelerator.load_state if load else accelerator.save_state)(f"{directory}/c")
    return {k: v.tolist() for k, v in accelerator.get_state_dict(model).items()}


class _Runs:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_nothing_in_a_sharded_checkpoint_is_run(tmp_path):
    first, _ = run_ranks(2, _sharded, str(tmp_path))
    assert run_ranks(2, _sharded, str(tmp_path), True)[0] == first
    merge(tmp_path / "c", tmp_path / "merged")
    path = tmp_path / "c" / "pytorch_model_fsdp_0" / ".metadata"
    size = path.stat().st_size
    attack = pickle.dumps(_Runs(f"touch {tmp_path}/ran"))
    path.write_bytes(attack.ljust(size, b"\0"))
    # One who can write a file can write its size and checksum, too.
    marker = tmp_path / "c" / checkpoint.MARKER
    facts = checkpoint.json.loads(marker.read_text())
    facts["checksums"] = {}
    marker.write_text(checkpoint.json.dumps(facts))
    for outcome in try_ranks(2, _sharded, str(tmp_path), True):
        assert (
            "is no description of a checkpoint, and is not loaded: it asks for posix.system" in outcome.error
        )
    with pytest.raises(LaunchError, match="it asks for posix.system"):
        merge(tmp_path / "c", tmp_path / "again")
    assert not (tmp_path / "ran").exists()


def _zero(directory, load=False):
    from accelify.runtime import DeepSpeedPlugin

    accelerator, model = _prepared(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
    accelerator.backward(model(torch.ones(2, 4)).sum())
    accelerator._optimizers.settled()[0].step()
    (accelerator.load_state if load else accelerator.save_state)(f"{directory}/c")
    return {k: v.tolist() for k, v in accelerator.get_state_dict(model).items()}


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_nothing_in_a_deepspeed_checkpoint_is_run(tmp_path):
    first, _ = run_ranks(2, _zero, str(tmp_path))
    assert run_ranks(2, _zero, str(tmp_path), True)[0] == first
    merge(tmp_path / "c", tmp_path / "merged")
    names = [
        p for p in (tmp_path / "c").rglob("*.pt") if "model_states" in p.name or "optim_states" in p.name
    ]
    assert len(names) == 3
    marker = tmp_path / "c" / checkpoint.MARKER
    facts = checkpoint.json.loads(marker.read_text())
    facts["checksums"] = {}
    for path in names:
        state = torch.load(path, weights_only=False)
        torch.save({**state, "attack": _Runs(f"touch {tmp_path}/ran")}, path)
        facts["files"][path.relative_to(tmp_path / "c").as_posix()] = path.stat().st_size
    marker.write_text(checkpoint.json.dumps(facts))
    for outcome in try_ranks(2, _zero, str(tmp_path), True):
        assert "holds more than data, and is not loaded" in outcome.error
    with pytest.raises(LaunchError, match="holds more than data"):
        merge(tmp_path / "c", tmp_path / "again")
    assert not (tmp_path / "ran").exists()


def _parts(directory, load, asynchronous):
    plugin = FullyShardedDataParallelPlugin(state_dict_type="SHARDED_STATE_DICT")
    accelerator, _ = _prepared(fsdp_plugin=plugin)
    if load:
        accelerator.load_state(f"{directory}/c")
    else:
        accelerator.save_state(f"{directory}/c", asynchronous=asynchronous)
        accelerator.wait_for_saving()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_flipped_bit_in_a_part(asynchronous, tmp_path):
    run_ranks(2, _parts, str(tmp_path), False, asynchronous)
    path = next((tmp_path / "c" / "pytorch_model_fsdp_0").glob("__1_*"))
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)
    for outcome in try_ranks(2, _parts, str(tmp_path), True, False):
        assert f"pytorch_model_fsdp_0/{path.name} is not what was written" in outcome.error


def _automatic(directory, act):
    config = ProjectConfiguration(directory, automatic_checkpoint_naming=True)
    accelerator, model = _prepared(project_config=config)
    weight = accelerator.unwrap_model(model).weight
    if act == "save":
        for value in (1.0, 2.0):
            nn.init.constant_(weight, value)
            accelerator.save_state()
    if act == "stale" and accelerator.process_index == 1:
        # This machine does not see the second checkpoint yet.
        checkpoint.numbered = lambda d: [(0, d / "checkpoint_0")]
    if act == "other" and accelerator.process_index == 1:
        checkpoint.view_of = lambda d: ("another", 0, 0)
    if act != "save":
        accelerator.load_state()
    return weight.mean().item()


def test_one_rank_chooses_the_newest(tmp_path):
    run_ranks(2, _automatic, str(tmp_path), "save")
    assert run_ranks(2, _automatic, str(tmp_path), "load") == [2.0, 2.0]
    assert run_ranks(2, _automatic, str(tmp_path), "stale") == [2.0, 2.0]
    for outcome in try_ranks(2, _automatic, str(tmp_path), "other"):
        assert "rank 1: " in outcome.error
        assert "holds another checkpoint here than on the main process" in outcome.error


def _save_on_the_main_process(directory):
    accelerator, _ = _prepared()
    if accelerator.is_main_process:
        accelerator.save_state(f"{directory}/c")
    accelerator.wait_for_everyone()


def test_saving_on_the_main_process_alone(tmp_path):
    for outcome in try_ranks(2, _save_on_the_main_process, str(tmp_path)):
        assert "rank 0: save_state, which every rank has to call, at " in outcome.error
    assert list(tmp_path.iterdir()) == []
