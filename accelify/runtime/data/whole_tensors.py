"""Batches of torch's TensorDataset, taken from its tensors in one piece.

torch reads such a batch sample by sample and puts the samples together again, which in a small model's step takes as
long as its backward pass. The samples of a batch are rows of tensors, so all of them are read by one index: the batch
is the same to the bit, and nothing of the script's runs in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate


def reads_rows(fetcher: Any) -> bool:
    """Whether what a loader fetches are rows of tensors, put together as torch does.

    Args:
        fetcher: of a pass of a DataLoader, in this process.
    """
    # No subclass of a script's: its samples are what its code returns.
    if type(fetcher.dataset) is not TensorDataset or fetcher.collate_fn is not default_collate:
        return False
    return bool(fetcher.auto_collation) and all(map(_has_plain_rows, fetcher.dataset.tensors))


def _has_plain_rows(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized)
    )


class WholeTensors:
    """In the place of a fetcher that `reads_rows`.

    Args:
        fetcher: it.
    """

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher
        self._tensors: tuple[torch.Tensor, ...] = fetcher.dataset.tensors

    def fetch(self, indices: list[Any]) -> Any:
        """The batch of these samples."""
        numbers = np.array(indices)
        known = numbers.dtype == np.int64 and numbers.ndim == 1 and min(indices) >= 0
        if not known or self._fetcher.dataset.tensors is not self._tensors:
            # Masks, places from the end, tensors that the script has exchanged since.
            return self._fetcher.fetch(indices)
        rows = torch.from_numpy(numbers)
        return [tensor.index_select(0, rows) for tensor in self._tensors]
