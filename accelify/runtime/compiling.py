"""Models compiled by torch.compile, whole or block by block."""

from __future__ import annotations

import torch

from .plugins import TorchDynamoPlugin


def compiled(model: torch.nn.Module, plugin: TorchDynamoPlugin) -> torch.nn.Module:
    """A compiled model.

    Args:
        model: placed and wrapped.
        plugin: with `use_regional_compilation`, the model's repeated blocks are compiled in place and the model itself
            comes back; without any such blocks, and otherwise, all of it is compiled.
    """
    arguments = plugin.compile_arguments()
    if plugin.use_regional_compilation:
        from .backends.units import repeated_blocks

        blocks = repeated_blocks(getattr(model, "module", model))
        for block in blocks:
            block.compile(**arguments)
        if blocks:
            return model
    return torch.compile(model, **arguments)  # type: ignore[return-value]
