"""DeepSpeed's configuration for one engine: the user's, with "auto" filled in from the script's objects."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from ..plugins import GradScalerKwargs
from .deepspeed_plugin import AUTO, DeepSpeedPlugin, DummyOptim, DummyScheduler, lookup, put

# Ways of working in which ranks share samples or layers; accelify gives every rank different samples.
_OTHER_PARALLELISM = ("tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline.stages")


@dataclass
class Script:
    """What a script has, for the values that its DeepSpeed configuration leaves to it.

    Args:
        precision: "no", "bf16" or "fp16".
        ranks: number of processes.
        accumulation: batches per optimizer step.
        batch_sizes: of the prepared loaders, in samples over all ranks.
        module: the model.
        optimizer: the script's, or its stand-in.
        scheduler: the stand-in for one, if the script has that.
        scaling: for the loss scaling of fp16.
    """

    precision: str
    ranks: int
    accumulation: int
    batch_sizes: list[int]
    module: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: DummyScheduler | None
    scaling: GradScalerKwargs | None = None


def resolved(plugin: DeepSpeedPlugin, script: Script) -> dict[str, Any]:
    """The configuration that DeepSpeed gets.

    accelify counts accumulation windows itself and tells DeepSpeed when one ends, so DeepSpeed's count is 1.

    Raises:
        ValueError: the configuration contradicts the script, or leaves to it what it does not have; with the key.
    """
    config = deepcopy(plugin.config)
    for place in _OTHER_PARALLELISM:
        if (lookup(config, place) or 1) not in (1, AUTO):
            raise ValueError(
                f"{place} in the DeepSpeed configuration: this engine trains on different samples on every rank only; "
                "take it out"
            )
    _fill_batch(config, plugin, script)
    if config.get("gradient_clipping") in (None, AUTO):
        # DeepSpeed's default is to clip at 1; what the script does not ask for is not done.
        config["gradient_clipping"] = 0.0
    _fill_precision(config, script)
    _fill_zero(config, plugin, script.module)
    _fill_optimizer(config, script.optimizer)
    _fill_scheduler(config, script)
    config.setdefault("zero_allow_untested_optimizer", True)
    config.setdefault("zero_force_ds_cpu_optimizer", False)
    config["managed_gradient_accumulation"] = False
    left = list(_autos(config))
    if left:
        raise ValueError(
            f'the DeepSpeed configuration has "auto" where accelify knows no value: {", ".join(left)}'
        )
    return config


def _autos(section: Any, place: str = "") -> Iterator[str]:
    for key, value in section.items() if isinstance(section, dict) else ():
        if value == AUTO:
            yield f"{place}{key}"
        else:
            yield from _autos(value, f"{place}{key}.")


def _fill_batch(config: dict[str, Any], plugin: DeepSpeedPlugin, script: Script) -> None:
    micro, total = (
        None if config.get(key) in (None, AUTO) else int(config[key])
        for key in ("train_micro_batch_size_per_gpu", "train_batch_size")
    )
    sizes = [max(1, -(-size // script.ranks)) for size in script.batch_sizes]
    steps = script.accumulation
    if micro is not None and sizes and micro not in sizes:
        raise ValueError(
            f"train_micro_batch_size_per_gpu is {micro} in the DeepSpeed configuration and the script's loaders give "
            f'each process batches of {", ".join(map(str, sorted(set(sizes))))}: write "auto" there'
        )
    if micro is None and sizes:
        micro = min(sizes) if plugin.is_train_batch_min else max(sizes)
    if micro is None:
        # Batches that no loader makes: DeepSpeed uses the number for its reports only.
        micro = 1 if total is None else max(1, total // (script.ranks * steps))
    if total is not None and total != micro * script.ranks * steps:
        raise ValueError(
            f"train_batch_size is {total} in the DeepSpeed configuration and the script trains on {micro} samples x "
            f'{script.ranks} processes x {steps} accumulation steps: write "auto" there'
        )
    config["train_micro_batch_size_per_gpu"] = micro
    config["gradient_accumulation_steps"] = 1
    config["train_batch_size"] = micro * script.ranks


def _fill_precision(config: dict[str, Any], script: Script) -> None:
    autocast = lookup(config, "torch_autocast.enabled")
    if autocast == AUTO:
        config.pop("torch_autocast")
    elif autocast:
        if script.precision == "fp16":
            raise ValueError(
                "torch_autocast.enabled in the DeepSpeed configuration: with fp16 accelify uses DeepSpeed's own loss "
                "scaling; take it out, or use bf16"
            )
        for name in ("bf16", "fp16"):
            if lookup(config, f"{name}.enabled") == AUTO:
                config.pop(name)
        return
    for name in ("bf16", "fp16"):
        if lookup(config, f"{name}.enabled") in (None, AUTO) and (name in config or script.precision == name):
            put(config, f"{name}.enabled", script.precision == name)
        # Settings of a precision that is not used may stay open.
        if lookup(config, f"{name}.enabled") is False:
            config[name] = {"enabled": False}
    if script.precision == "fp16":
        fp16 = config["fp16"]
        for key in [k for k, v in fp16.items() if v == AUTO]:
            del fp16[key]
        _fill_scaling(fp16, script.scaling)


def _fill_scaling(fp16: dict[str, Any], scaling: GradScalerKwargs | None) -> None:
    if scaling is None:
        return
    if scaling.growth_factor != 2.0 or scaling.backoff_factor != 0.5 or not scaling.enabled:
        raise ValueError(
            "GradScalerKwargs: DeepSpeed doubles and halves its loss scale; growth_factor, backoff_factor and enabled "
            "cannot be set"
        )
    power = scaling.init_scale.hex() if isinstance(scaling.init_scale, float) else ""
    mantissa, _, exponent = power.partition("p")
    if mantissa != "0x1.0000000000000" or int(exponent) < 0:
        raise ValueError(
            f"GradScalerKwargs: DeepSpeed's loss scale begins with a power of two, not {scaling.init_scale}"
        )
    fp16.setdefault("initial_scale_power", int(exponent))
    fp16.setdefault("loss_scale_window", scaling.growth_interval)


def hidden_size(module: torch.nn.Module) -> int | None:
    """The width of a model that has a `config`, as Hugging Face's have; the largest where there are several."""
    config = getattr(module, "config", None)
    for owner in (config, getattr(config, "text_config", None)):
        for name in ("hidden_size", "hidden_sizes", "d_model"):
            value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
            if isinstance(value, (list, tuple)) and value:
                return int(max(value))
            if isinstance(value, int):
                return value
    return None


def _fill_zero(config: dict[str, Any], plugin: DeepSpeedPlugin, module: torch.nn.Module) -> None:
    zero = config["zero_optimization"]
    width = hidden_size(module)
    if width is not None:
        # The sizes that DeepSpeed's guide gives for transformers.
        for key, value in (
            ("reduce_bucket_size", width * width),
            ("stage3_prefetch_bucket_size", int(0.9 * width * width)),
            ("stage3_param_persistence_threshold", 10 * width),
        ):
            if zero.get(key) == AUTO:
                zero[key] = value
    if zero.get("stage3_gather_16bit_weights_on_model_save") == AUTO:
        zero["stage3_gather_16bit_weights_on_model_save"] = bool(plugin.zero3_save_16bit_model)
    # Everything else that is open has a default of DeepSpeed's.
    for key in [k for k, v in zero.items() if v == AUTO]:
        del zero[key]
    for part in ("offload_optimizer", "offload_param"):
        section = zero.get(part)
        if isinstance(section, dict):
            for key in [k for k, v in section.items() if v == AUTO]:
                del section[key]
            if section.get("device", "none") == "none":
                del zero[part]
    if "reduce_bucket_size" not in zero:
        # DeepSpeed reserves its bucket whole; more than all gradients together never come.
        numbers = sum(getattr(p, "ds_numel", p.numel()) for p in module.parameters())
        zero["reduce_bucket_size"] = max(1, min(500_000_000, numbers))
    if plugin.zero_stage == 1 and zero.get("overlap_comm"):
        raise ValueError("zero_optimization.overlap_comm needs stage 2 or 3; take it out, or write false")


def _fill_optimizer(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    section = config.get("optimizer")
    if not isinstance(optimizer, DummyOptim):
        if section is not None:
            raise ValueError(
                f"optimizer is in the DeepSpeed configuration, and the script has its own {type(optimizer).__name__}: "
                "take one of them out, or write DummyOptim(model.parameters(), lr=...) in the script"
            )
        return
    if section is None:
        raise ValueError(
            "the script has a DummyOptim and the DeepSpeed configuration no optimizer: add the key optimizer, or make "
            "an optimizer of torch's"
        )
    params = section.setdefault("params", {})
    for key in [k for k, v in params.items() if v == AUTO]:
        if key in optimizer.defaults:
            params[key] = optimizer.defaults[key]
        else:
            del params[key]


def _fill_scheduler(config: dict[str, Any], script: Script) -> None:
    section = config.get("scheduler")
    if section is None:
        return
    # torch's schedulers count an optimizer's steps by wrapping this method.
    if script.scheduler is None and hasattr(script.optimizer.step, "_wrapped_by_lr_sched"):
        raise ValueError(
            "scheduler is in the DeepSpeed configuration, and the script has its own: take one of them out, or write "
            "DummyScheduler(optimizer, total_num_steps=..., warmup_num_steps=...) in the script"
        )
    values: dict[str, Any] = {"warmup_min_lr": 0.0, "warmup_max_lr": script.optimizer.defaults.get("lr")}
    stated = lookup(config, "optimizer.params.lr")
    if stated is not None:
        values["warmup_max_lr"] = stated
    if script.scheduler is not None:
        values["warmup_num_steps"] = script.scheduler.warmup_num_steps
        values["total_num_steps"] = script.scheduler.total_num_steps
        values |= script.scheduler.kwargs
    params = section.setdefault("params", {})
    for key in [k for k, v in params.items() if v == AUTO]:
        if values.get(key) is None:
            raise ValueError(
                f'scheduler.params.{key} is "auto" in the DeepSpeed configuration: give it to a DummyScheduler that is '
                "made before prepare"
            )
        params[key] = values[key]
