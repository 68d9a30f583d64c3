"""What a run under DeepSpeed is told, without DeepSpeed itself."""

import json
import sys

import pytest
import torch
from torch import nn

from accelify.runtime import DeepSpeedPlugin, DummyOptim, DummyScheduler, GradScalerKwargs
from accelify.runtime.backends.deepspeed_config import Script, resolved
from accelify.runtime.backends.deepspeed_launcher import hide_local_rank
from tests.distributed.processes import fresh_accelerator


def script(**changes):
    model = nn.Linear(4, 2)
    values = {
        "precision": "no",
        "ranks": 2,
        "accumulation": 1,
        "batch_sizes": [16],
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "scheduler": None,
    }
    return Script(**{**values, **changes})


def test_a_section_of_the_configuration_file():
    told = DeepSpeedPlugin.from_config(
        {
            "zero_stage": "3",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "0.5",
            "offload_optimizer_device": "CPU",
            "offload_param_device": "none",
            "zero3_init_flag": "true",
            "deepspeed_multinode_launcher": "standard",
        }
    )
    assert (told.zero_stage, told.zero3_init_flag, told.mixed_precision) == (3, True, None)
    assert told.config == {
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    }


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"zero_stag": 2}, "has no key 'zero_stag': did you mean zero_stage?"),
        ({"zero_stage": 4}, "zero_stage must be 0, 1, 2 or 3"),
        ({"zero_stage": "two"}, "zero_stage must be a whole number"),
        ({"gradient_clipping": "much"}, "gradient_clipping must be a number"),
        (
            {"gradient_accumulation_steps": 0},
            "gradient_accumulation_steps must be a whole number of at least 1",
        ),
        ({"offload_optimizer_device": "disk"}, "offload_optimizer_device cannot be 'disk'"),
        ({"zero_stage": 2, "offload_param_device": "cpu"}, "offload_param needs zero_stage 3"),
        ({"zero_stage": 3, "offload_param_device": "nvme"}, "give offload_param_nvme_path"),
        ({"zero3_init_flag": "perhaps"}, "zero3_init_flag must be true or false"),
        (
            {"deepspeed_config_file": "/nowhere/zero.json"},
            "there is no DeepSpeed configuration /nowhere/zero.json",
        ),
    ],
)
def test_what_cannot_be_is_named(section, told):
    with pytest.raises(ValueError, match="^[^\n]+$") as caught:
        DeepSpeedPlugin.from_config(section)
    assert told in str(caught.value)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "zero.json").write_text("{stage: 1}")
    with pytest.raises(ValueError, match="zero.json cannot be read"):
        DeepSpeedPlugin(hf_ds_config=tmp_path / "zero.json")
    (tmp_path / "zero.json").write_text("[1]")
    with pytest.raises(ValueError, match="zero.json is no JSON object"):
        DeepSpeedPlugin(hf_ds_config=tmp_path / "zero.json")


def test_file_and_script_do_not_contradict_each_other():
    with pytest.raises(ValueError, match=r"zero_optimization.stage is 1 .* and zero_stage is 2"):
        DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 1}}, zero_stage=2)
    told = DeepSpeedPlugin(hf_ds_config={"bf16": {"enabled": True}, "gradient_accumulation_steps": 4})
    assert told.mixed_precision == "bf16"
    told.check_precision("bf16")
    with pytest.raises(ValueError, match=r'bf16.enabled is true .* mixed_precision="fp16"'):
        told.check_precision("fp16")
    assert told.accumulation(1) == 4
    with pytest.raises(ValueError, match="gradient_accumulation_steps is 4 .* and 2 in the script"):
        told.accumulation(2)
    closed = DeepSpeedPlugin(hf_ds_config={"fp16": {"enabled": False}})
    with pytest.raises(ValueError, match="fp16.enabled is false"):
        closed.check_precision("fp16")


def test_open_values_are_filled_in():
    told = DeepSpeedPlugin(
        hf_ds_config={
            "train_batch_size": "auto",
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto", "loss_scale": "auto"},
            "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto", "overlap_comm": "auto"},
        },
        zero_stage=2,
    )
    model = nn.Linear(4, 2)
    model.config = type("Config", (), {"hidden_size": 32})()
    config = resolved(told, script(precision="bf16", accumulation=3, module=model))
    assert config["bf16"]["enabled"]
    assert config["fp16"] == {"enabled": False}
    assert config["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 1024}
    assert (config["train_batch_size"], config["train_micro_batch_size_per_gpu"]) == (16, 8)
    # DeepSpeed's own default is to clip at 1.
    assert config["gradient_clipping"] == 0.0
    assert config["managed_gradient_accumulation"] is False
    # The user's own dict is as it was.
    assert told.config["bf16"]["enabled"] == "auto"


def test_batches_that_do_not_fit_are_named():
    told = DeepSpeedPlugin(hf_ds_config={"train_batch_size": 48})
    assert resolved(told, script(accumulation=3))["train_micro_batch_size_per_gpu"] == 8
    with pytest.raises(ValueError, match="train_batch_size is 48 .* 8 samples x 2 processes x 1"):
        resolved(told, script())
    with pytest.raises(ValueError, match="train_micro_batch_size_per_gpu is 5 .* batches of 8"):
        resolved(DeepSpeedPlugin(hf_ds_config={"train_micro_batch_size_per_gpu": 5}), script())
    several = DeepSpeedPlugin(is_train_batch_min=False)
    assert resolved(several, script(batch_sizes=[16, 64]))["train_micro_batch_size_per_gpu"] == 32


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ({"activation_checkpointing": {"number": "auto"}}, "knows no value: activation_checkpointing.number"),
        ({"zero_optimization": {"stage": 1, "overlap_comm": True}}, "overlap_comm needs stage 2 or 3"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size"),
        ({"optimizer": {"type": "AdamW"}}, "the script has its own SGD"),
    ],
)
def test_what_the_engine_does_not_do_is_named(file, told):
    with pytest.raises(ValueError, match="^[^\n]+$") as caught:
        resolved(DeepSpeedPlugin(hf_ds_config=file), script())
    assert told in str(caught.value)


def test_stand_ins_need_what_they_stand_for():
    weights = list(nn.Linear(4, 2).parameters())
    optimizer = DummyOptim(weights, lr=0.3, betas=(0.8, 0.9))
    with pytest.raises(ValueError, match="DummyOptim and the DeepSpeed configuration no optimizer"):
        resolved(DeepSpeedPlugin(), script(optimizer=optimizer))
    file = {
        "optimizer": {"type": "Adam", "params": {"lr": "auto", "betas": "auto", "eps": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    }
    told = DeepSpeedPlugin(hf_ds_config=file)
    with pytest.raises(ValueError, match="scheduler.params.warmup_num_steps is .auto."):
        resolved(told, script(optimizer=optimizer))
    scheduler = DummyScheduler(optimizer, warmup_num_steps=7)
    config = resolved(told, script(optimizer=optimizer, scheduler=scheduler))
    assert config["optimizer"]["params"] == {"lr": 0.3, "betas": (0.8, 0.9)}
    assert config["scheduler"]["params"] == {"warmup_max_lr": 0.3, "warmup_num_steps": 7}
    own = torch.optim.SGD(weights, lr=0.1)
    torch.optim.lr_scheduler.StepLR(own, 1)
    with pytest.raises(
        ValueError, match="scheduler is in the DeepSpeed configuration, and the script has its own"
    ):
        resolved(DeepSpeedPlugin(hf_ds_config={"scheduler": {"type": "WarmupLR"}}), script(optimizer=own))
    for use in (optimizer.step, scheduler.step):
        with pytest.raises(RuntimeError, match="after accelerator.prepare"):
            use()


def test_loss_scaling_is_handed_on():
    kwargs = {"precision": "fp16", "scaling": GradScalerKwargs(init_scale=1024.0, growth_interval=50)}
    fp16 = resolved(DeepSpeedPlugin(), script(**kwargs))["fp16"]
    assert fp16 == {"enabled": True, "initial_scale_power": 10, "loss_scale_window": 50}
    for bad in (GradScalerKwargs(init_scale=1000.0), GradScalerKwargs(growth_factor=3.0)):
        with pytest.raises(ValueError, match="GradScalerKwargs"):
            resolved(DeepSpeedPlugin(), script(precision="fp16", scaling=bad))


def test_without_deepspeed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(ImportError, match=r"pip install .*'.*\[deepspeed\]'"):
        fresh_accelerator(deepspeed_plugin=DeepSpeedPlugin())


def test_a_plugin_of_another_kind(monkeypatch):
    with pytest.raises(ValueError, match="must be a DeepSpeedPlugin, not str"):
        fresh_accelerator(deepspeed_plugin="zero.json")
    two = {"student": DeepSpeedPlugin(), "teacher": DeepSpeedPlugin()}
    with pytest.raises(ValueError, match="deepspeed_plugins names student, teacher: one"):
        fresh_accelerator(deepspeed_plugins=two)


@pytest.mark.parametrize(
    ("text", "launched", "left"),
    [
        ("parse()", True, ["--lr", "1"]),
        ("add_argument('--local_rank')", True, ["--local_rank=3", "--lr", "1"]),
        ("parse()", False, ["--local_rank=3", "--lr", "1"]),
    ],
)
def test_the_launchers_argument(text, launched, left, tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text(text)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    monkeypatch.setattr(sys, "argv", [str(path), "--local_rank=3", "--lr", "1"])
    # Set first, so that what the launcher's argument sets is taken back too.
    monkeypatch.setenv("LOCAL_RANK", "")
    monkeypatch.delenv("LOCAL_RANK")
    for name in ("CROSS_RANK", "CROSS_SIZE"):
        monkeypatch.setenv(name, "0") if launched else monkeypatch.delenv(name, raising=False)
    hide_local_rank()
    assert sys.argv[1:] == left


def test_the_launchers_variable_reaches_the_plugin():
    from accelify.runtime.arguments import engine_options

    found = engine_options({}, json.dumps({"deepspeed": {"zero_stage": 1}}))["deepspeed"]
    assert found.zero_stage == 1
    script_says = DeepSpeedPlugin(zero_stage=3)
    variable = json.dumps({"deepspeed": {"zero_stage": 1}})
    assert engine_options({"deepspeed": script_says}, variable)["deepspeed"] is script_says
