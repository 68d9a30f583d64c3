"""Worker processes of loaders: random streams of their own on every rank."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info


class WorkersApart:
    """A `worker_init_fn` that gives the workers of a rank above 0 other streams than rank 0's have.

    The order of samples needs the same random state on every rank where a pass begins, and workers are seeded from
    that: without this, random augmentation would repeat itself from rank to rank.

    Args:
        worker_init_fn: the script's own, called afterwards.
        rank: of the process that the workers belong to.
    """

    def __init__(self, worker_init_fn: Callable[[int], Any] | None, rank: int) -> None:
        self.worker_init_fn = worker_init_fn
        self.rank = rank

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            # Far apart in the low 32 bits, which are all that torch's generator on the CPU looks at.
            seed = (info.seed + self.rank * 0x9E3779B97F4A7C15) % 2**63
            # torch lets nobody set it, and scripts seed generators of their own with it.
            object.__setattr__(info, "seed", seed)
            torch.manual_seed(seed)
            random.seed(seed)
            if "numpy" in sys.modules:
                import numpy as np

                # Python's generator seeds itself in the same way: with the same numbers the two would agree.
                np.random.seed([seed % 2**32, seed >> 32, 1])
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker)
