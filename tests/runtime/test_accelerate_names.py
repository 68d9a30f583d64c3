"""What scripts of Hugging Face Accelerate's users ask for beside training."""

import base64
import json
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from accelify.runtime import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    Accelerator,
    AcceleratorState,
    DistributedOperationException,
    FullyShardedDataParallelPlugin,
    HfDeepSpeedConfig,
    PartialState,
    RanksDisagreeError,
    copy_tensor_to_devices,
)

CONFIG = {
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
    "bf16": {"enabled": False},
    "train_batch_size": "auto",
}


def test_a_deepspeed_configuration_is_asked(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(CONFIG))
    text = json.dumps(CONFIG)
    coded = base64.urlsafe_b64encode(text.encode()).decode()
    for given in (CONFIG, str(tmp_path / "c.json"), text, coded):
        found = HfDeepSpeedConfig(given)
        assert found.config == CONFIG
        assert (found.is_zero2(), found.is_zero3(), found.is_offload()) == (False, True, True)
        assert found.get_value("zero_optimization.stage") == 3
        assert found.get_value("optimizer.params.lr", 0.5) == 0.5
        assert (found.is_true("bf16.enabled"), found.is_false("bf16.enabled")) == (False, True)
        assert (found.is_true("fp16.enabled"), found.is_false("fp16.enabled")) == (False, False)
        found.del_config_sub_tree("zero_optimization.offload_param")
        found.set_stage_and_offload()
        assert not found.is_offload()
        with pytest.raises(ValueError, match="has no fp16"):
            found.del_config_sub_tree("fp16", must_exist=True)
    assert "offload_param" in CONFIG["zero_optimization"]
    with pytest.raises(ValueError, match="a DeepSpeed configuration is a dict"):
        HfDeepSpeedConfig("no/such/file.json")


def test_accelerates_name_of_the_error():
    assert DistributedOperationException is RanksDisagreeError


def test_a_state_that_is_asked_before_it_is_made():
    accelerator = Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    sentence = r"`AcceleratorState` object has no attribute `distributed_type`. This happens if "
    with pytest.raises(AttributeError, match=sentence + r"`AcceleratorState._reset_state\(\)` was called"):
        accelerator.prepare(torch.nn.Linear(1, 1))
    with pytest.raises(AttributeError, match="'PartialState' object has no attribute 'no_such_thing'"):
        _ = PartialState(cpu=True).no_such_thing
    AcceleratorState._reset_state(reset_partial_state=True)


class _Stream(IterableDataset):
    def __iter__(self):
        yield from range(4)


def test_overriding_even_batches_of_a_stream_is_warned_of():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(_Stream(), batch_size=2))
    told = pytest.warns(UserWarning, match="only supported for map-style datasets")
    with told, accelerator.join_uneven_inputs([], even_batches=False):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with accelerator.join_uneven_inputs([]):
            pass
    assert len(list(loader)) == 2


def test_a_tensor_for_all_devices():
    assert torch.equal(copy_tensor_to_devices(torch.arange(3)), torch.arange(3))


@pytest.mark.parametrize(
    ("safe", "size", "name"),
    [
        (True, "10GB", SAFE_WEIGHTS_NAME),
        (True, 8, SAFE_WEIGHTS_INDEX_NAME),
        (False, "10GB", WEIGHTS_NAME),
        (False, 8, WEIGHTS_INDEX_NAME),
    ],
)
def test_names_of_the_files_of_weights(safe, size, name, tmp_path):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_model(model, tmp_path, max_shard_size=size, safe_serialization=safe)
    assert (tmp_path / name).is_file()


def test_a_state_has_the_plugins_of_its_engine():
    plugin = FullyShardedDataParallelPlugin()
    assert Accelerator(cpu=True, fsdp_plugin=plugin).state.fsdp_plugin is plugin
    state = Accelerator(cpu=True).state
    assert (state.fsdp_plugin, state.deepspeed_plugin) == (None, None)
