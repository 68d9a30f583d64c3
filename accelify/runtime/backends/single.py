"""One process on one device: what torch does, and nothing else."""

from __future__ import annotations

import torch

from ..precision import run_in_precision
from .base import Backend


class SingleBackend(Backend):
    """Leaves models as they are, so that a run is the original's to the bit."""

    plain = True

    def wrap(self, model: torch.nn.Module, evaluation: bool = False) -> torch.nn.Module:
        run_in_precision(model, self.precision)
        return model
