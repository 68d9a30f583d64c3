"""Whole weights of models that DeepSpeed divides between ranks, under the script's names."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .. import guard


def is_divided(parameter: torch.Tensor) -> bool:
    """Whether ranks hold parts of this parameter (stage 3, or `zero.Init`)."""
    return hasattr(parameter, "ds_id")


def whole(parameter: torch.Tensor, in_16_bits: bool = False) -> torch.Tensor:
    """A parameter's values, whole; every rank must ask.

    Args:
        parameter: of a model under DeepSpeed.
        in_16_bits: as the model computes with it; else the float32 values that the optimizer works on, if it has them.
    """
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    if not in_16_bits and parameter.requires_grad and parameter.dtype != torch.float32:
        retained = _in_full(parameter)
        if retained is None:
            retained = safe_get_full_fp32_param(parameter)
        if retained is not None:
            return retained.detach().reshape(getattr(parameter, "ds_shape", parameter.shape))
    if not is_divided(parameter):
        values = parameter.detach()
    else:
        with deepspeed.zero.GatheredParameters([parameter]):
            values = parameter.detach().clone()
    # Weights that are not trained have no float32 values; the files are of one type all the same.
    return values if in_16_bits or not values.is_floating_point() else values.float()


def _in_full(parameter: torch.Tensor) -> torch.Tensor | None:
    """The float32 values in stage 0, where each rank has them all."""
    return parameter.__dict__.get("accelify_full")


def note_full_values(engine: Any) -> None:
    """In stage 0 with 16 bits: let each parameter know its float32 values."""
    optimizer = engine.optimizer
    for half, full in zip(
        getattr(optimizer, "fp16_groups", ()), getattr(optimizer, "fp32_groups", ()), strict=False
    ):
        if not engine.zero_optimization():
            for parameter, values in zip(half, full, strict=True):
                parameter.__dict__["accelify_full"] = values


def whole_state(module: torch.nn.Module, in_16_bits: bool = False) -> dict[str, Any]:
    """What `module.state_dict()` would return in plain PyTorch; every rank must call.

    Weights of stage 3 are put together one by one, on the CPU.
    """
    found: dict[int, Any] = {}
    state: dict[str, Any] = {}
    with guard.collective("gathering of weights", type(module).__name__):
        for name, value in module.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                state[name] = value
                continue
            if id(value) not in found:
                values = whole(value, in_16_bits) if isinstance(value, torch.nn.Parameter) else value.detach()
                found[id(value)] = values.cpu() if is_divided(value) else values
            state[name] = found[id(value)]
    return state


def load_whole(module: torch.nn.Module, weights: dict[str, Any], strict: bool) -> Any:
    """Load whole weights into a model, and into what its optimizer works on; every rank must call.

    Returns:
        Missing and unexpected names, as torch's `load_state_dict`.

    Raises:
        RuntimeError: a shape that does not fit, or with `strict` a name.
    """
    if not any(map(is_divided, module.parameters())):
        stated = module.load_state_dict(weights, strict=strict)
        _renew_full_values(module, weights)
        return stated
    return _load_divided(module, weights, strict)


def _renew_full_values(module: torch.nn.Module, weights: dict[str, Any]) -> None:
    from deepspeed.utils import safe_set_full_fp32_param

    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name not in weights:
            continue
        value = weights[name].detach().to(parameter.device, torch.float32)
        retained = _in_full(parameter)
        if retained is not None:
            retained.data.copy_(value)
        elif getattr(parameter, "_hp_mapping", None) is not None:
            safe_set_full_fp32_param(parameter, value)


def _load_divided(module: torch.nn.Module, weights: dict[str, Any], strict: bool) -> Any:
    import deepspeed
    from deepspeed.utils import safe_set_local_fp32_param

    own = {n: v for n, v in module.state_dict(keep_vars=True).items() if isinstance(v, torch.Tensor)}
    missing = [n for n in own if n not in weights]
    unexpected = [n for n in weights if n not in own]
    problems = [
        f"{n} has the shape {list(weights[n].shape)}, here {list(_shape(v))}"
        for n, v in own.items()
        if n in weights and tuple(weights[n].shape) != tuple(_shape(v))
    ]
    if strict:
        problems += [f"{n} is missing" for n in missing] + [f"{n} is unexpected" for n in unexpected]
    if problems:
        raise RuntimeError("; ".join(problems[:5]))
    with torch.no_grad():
        for name, value in own.items():
            if name not in weights:
                continue
            if not is_divided(value):
                value.copy_(weights[name])
                continue
            # Every rank has the weights, and writes its part of them when the region ends.
            with deepspeed.zero.GatheredParameters([value], modifier_rank=0):
                value.data.copy_(weights[name])
            if value.requires_grad and hasattr(value, "_z3_optimizer"):
                safe_set_local_fp32_param(value, _own_part(weights[name], value))
    return torch.nn.modules.module._IncompatibleKeys(missing, unexpected)


def _shape(value: torch.Tensor) -> Any:
    return getattr(value, "ds_shape", value.shape)


def _own_part(values: torch.Tensor, parameter: Any) -> torch.Tensor:
    """This rank's part of a parameter in float32; the last rank's is filled up with zeros."""
    size = parameter.partition_numel()
    begin = size * dist.get_rank(parameter.ds_process_group)
    part = torch.zeros(size, dtype=torch.float32, device=parameter.ds_tensor.device)
    own = values.detach().reshape(-1)[begin : begin + size]
    part[: own.numel()].copy_(own)
    return part
