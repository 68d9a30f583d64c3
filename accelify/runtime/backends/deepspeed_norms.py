"""Normalisation by running statistics, in models whose weights DeepSpeed turns to 16 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase


class FullPrecisionForward:
    """Stands in a layer's `forward` and computes in float32.

    Its statistics stay in float32 (in 16 bits small changes would be lost), and torch has no kernel for statistics of
    one type and weights of another.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> Any:
        own = self.module.__dict__
        retained = own["_parameters"]
        own["_parameters"] = {n: None if p is None else p.float() for n, p in retained.items()}
        try:
            with torch.autocast(x.device.type, enabled=False):
                return type(self.module).forward(self.module, x.float()).to(x.dtype)
        finally:
            own["_parameters"] = retained


def keep_statistics(module: torch.nn.Module) -> None:
    """Let layers with running statistics compute in float32."""
    for layer in module.modules():
        if isinstance(layer, _NormBase) and getattr(layer, "running_mean", None) is not None:
            layer.__dict__["forward"] = FullPrecisionForward(layer)
