"""The Accelerator's talk between ranks."""

from __future__ import annotations

from typing import Any

import torch

from . import collectives
from .data.sharding import Shares
from .nested import leaves
from .process import ProcessControl
from .state import GradientState


class Exchange(ProcessControl):
    """The part of the Accelerator that gathers, reduces and signals."""

    gradient_state: GradientState
    flag_tensor: torch.Tensor | None = None

    def _shares(self) -> Shares | None:
        loaders = self.gradient_state.loaders
        return loaders[-1].shares if loaders else None

    def gather(self, tensor: Any) -> Any:
        """See `collectives.gather`."""
        return collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gather what was computed on the current batch, each sample of the loader exactly once.

        Args:
            input_data: tensors with one entry a sample, or, with `use_gather_object` or where there is something
                else among them, a list of objects.
            use_gather_object: gather as objects.
        """
        if self.num_processes == 1:
            return input_data
        shares = self._shares()
        items = leaves(input_data)
        if use_gather_object or not items or not all(isinstance(x, torch.Tensor) for x in items):
            repeated = shares is not None and not shares.sizes[self.process_index]
            own = list(input_data) if isinstance(input_data, (list, tuple)) else [input_data]
            return collectives.gather_object([] if repeated else own)
        if shares is None or (len(set(shares.sizes)) == 1 and shares.sizes[0]):
            return collectives.gather(input_data)
        return collectives.gather_sized(input_data, shares.sizes)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """See `collectives.reduce`."""
        return collectives.reduce(tensor, reduction, scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        """See `collectives.pad_across_processes`."""
        return collectives.pad_across_processes(tensor, dim, pad_index, pad_first)

    def set_trigger(self) -> None:
        """Tell all ranks something, to be seen by `check_trigger`."""
        self.flag_tensor = torch.tensor(1)

    def check_trigger(self) -> bool:
        """Whether any rank called `set_trigger` since the last check; every rank must ask."""
        flag = self.flag_tensor if self.flag_tensor is not None else torch.tensor(0)
        self.flag_tensor = None
        return bool(collectives.reduce(flag, "sum").item())
