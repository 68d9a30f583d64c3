"""Which modules of a model are sharded as units: gathered before their forward, freed after it."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from ..sections import near
from .fsdp_plugin import FullyShardedDataParallelPlugin

# torch has no forward to hook into in these.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
# From so many parameters on, a single layer of a list is worth separate exchanges.
_LEAST_LAYER = 2**16


def find_units(model: nn.Module, plugin: FullyShardedDataParallelPlugin) -> list[nn.Module]:
    """The units within `model`, the model itself left out.

    A module that shares a parameter with the rest of the model is none: tied weights stay in one unit.

    Raises:
        ValueError: a class name that the model has no module of.
    """
    policy = plugin.auto_wrap_policy
    names = plugin.transformer_cls_names_to_wrap
    if policy is None:
        if names:
            policy = "transformer_based_wrap"
        elif plugin.min_num_params is not None:
            policy = "size_based_wrap"
    if policy == "no_wrap":
        return []
    if policy == "transformer_based_wrap":
        found = _by_class(model, names or getattr(model, "_no_split_modules", None) or [])
    elif policy == "size_based_wrap":
        found = _by_size(model, plugin.min_num_params or 1)
    elif callable(policy):
        found = [m for m in model.modules() if m is not model and policy(m)]
    else:
        present = {type(m).__name__ for m in model.modules()}
        known = [n for n in getattr(model, "_no_split_modules", None) or [] if n in present]
        found = _by_class(model, known) if known else repeated_blocks(model)
    return _without_tied(model, [m for m in found if _can_be_unit(m)])


def _can_be_unit(module: nn.Module) -> bool:
    return not isinstance(module, _CONTAINERS) and any(True for _ in module.parameters())


def _by_class(model: nn.Module, names: list[str] | str) -> list[nn.Module]:
    if not names:
        raise ValueError(
            "transformer_based_wrap needs the names of the block classes: transformer_cls_names_to_wrap, or "
            "fsdp_transformer_layer_cls_to_wrap in the configuration file"
        )
    present = sorted({type(m).__name__ for m in model.modules() if _can_be_unit(m)})
    for name in names:
        if name not in present:
            raise ValueError(
                f"{type(model).__name__} has no module of the class {name!r}: {near(name, present)}"
            )
    return [m for m in model.modules() if m is not model and type(m).__name__ in names]


def _by_size(model: nn.Module, least: int) -> list[nn.Module]:
    """From the inside out: a module whose parameters, those of units within left out, are at least `least`."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> int:
        size = sum(p.numel() for p in module._parameters.values() if p is not None)
        size += sum(visit(child) for child in module.children())
        if size >= least and module is not model and _can_be_unit(module):
            found.append(module)
            return 0
        return size

    visit(model)
    return found


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Children of one class that a list or sequence has several of, the outermost ones."""
    found: list[nn.Module] = []
    for module in model.children():
        found += [] if isinstance(module, (nn.ModuleList, nn.Sequential)) else repeated_blocks(module)
    holders = [m for m in model.children() if isinstance(m, (nn.ModuleList, nn.Sequential))]
    if isinstance(model, (nn.ModuleList, nn.Sequential)):
        holders = [model]
        found = []
    for holder in holders:
        kinds = Counter(type(child) for child in holder)
        for child in holder:
            size = sum(p.numel() for p in child.parameters())
            if kinds[type(child)] > 1 and size >= (1 if any(child.children()) else _LEAST_LAYER):
                found.append(child)
            elif any(child.children()):
                found += repeated_blocks(child)
    return found


def _without_tied(model: nn.Module, units: list[nn.Module]) -> list[nn.Module]:
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).add(id(module))
    retained = []
    for unit in units:
        inside = {id(m) for m in unit.modules()}
        if all(owners[id(p)] <= inside for p in unit.parameters()):
            retained.append(unit)
    return retained


def needs_full_precision(module: nn.Module, device: torch.device) -> bool:
    """Normalisation layers whose weights have to stay in float32: those with statistics, and on the CPU all."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return True
    return device.type == "cpu" and isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm))
