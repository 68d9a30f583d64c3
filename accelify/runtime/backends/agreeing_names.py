"""A model's tensors are brought together by place, so every rank must have the same ones in the same order.

A `set` of text has another order in every process, and what is registered by it as well. Buffers are put in rank 0's
order, which changes nothing else; of weights the order is also that of the optimizer's state and of its checkpoints, so
there the script must choose one.
"""

from __future__ import annotations

import hashlib

import torch

from ..collectives import all_gather_objects, broadcast_object, on_any_rank


def agree_on_names(model: torch.nn.Module) -> None:
    """Put the buffers of a model in rank 0's order; every rank has to call.

    Args:
        model: not wrapped yet.

    Raises:
        ValueError: on every rank, where weights or buffers are not the same ones in the same order after that, or have
            no shape so far.
    """
    if not _any_other(_names(model)):
        return
    _order_buffers(model, broadcast_object([name for name, _ in model.named_buffers()]))
    names = _names(model)
    if not _any_other(names):
        return
    of_ranks = all_gather_objects(names)
    first = of_ranks[0]
    for rank, other in enumerate(of_ranks):
        for place in range(max(len(first), len(other))):
            here, there = (names[place] if place < len(names) else "nothing more" for names in (first, other))
            if here != there:
                raise ValueError(
                    f"{type(model).__name__} is not the same on all ranks: in place {place} rank 0 has {here}, and "
                    f"rank {rank} {there}; register the same parts everywhere, in the same order (a set of names has "
                    "another one in every process: sort it)"
                )


def _names(model: torch.nn.Module) -> list[str]:
    named = (*model.named_parameters(), *model.named_buffers())
    shapeless = next((name for name, tensor in named if torch.nn.parameter.is_lazy(tensor)), None)
    if shapeless is not None:
        raise ValueError(
            f"`{shapeless}` of {type(model).__name__} has no shape before the first batch, and is not to be divided or "
            "averaged: run a batch through the model before `prepare`, as in `model(next(iter(loader))[0])`"
        )
    return [f"{name} {list(tensor.shape)}" for name, tensor in named]


def _any_other(names: list[str]) -> bool:
    """Whether any rank has other names than rank 0; the answer is the same on all of them."""
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
    return on_any_rank(digest != broadcast_object(digest))


def _order_buffers(model: torch.nn.Module, names: list[str]) -> None:
    places = {name: place for place, name in enumerate(names)}
    for prefix, module in model.named_modules():
        own = module._buffers
        wanted = sorted(own, key=lambda name: places.get(f"{prefix}.{name}" if prefix else name, len(places)))
        if wanted != list(own):
            for name in wanted:
                own[name] = own.pop(name)
