"""Models compiled by torch.compile block by block."""

from __future__ import annotations

from typing import Any

import torch


def compile_blocks(model: torch.nn.Module, arguments: dict[str, Any]) -> bool:
    """Compile a model's repeated blocks in place; returns whether there are any.

    Args:
        model: placed and wrapped.
        arguments: those of `torch.compile`.
    """
    from .backends.units import repeated_blocks

    blocks = repeated_blocks(getattr(model, "module", model))
    for block in blocks:
        block.compile(**arguments)
    return bool(blocks)
