"""The Accelerator's talk between ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import collectives
from .data import rank_numpy
from .data.hand_made import own_share_of
from .data.sharding import Shares
from .nested import honor_type, is_array, leaves, map_leaves
from .process import ProcessControl
from .state import GradientState

if TYPE_CHECKING:
    from .backends.base import Backend


class Exchange(ProcessControl):
    """The part of the Accelerator that gathers, reduces and signals."""

    gradient_state: GradientState
    backend: Backend
    flag_tensor: torch.Tensor | None = None
    # Shares of the batch that `shard_batch` cut last, outside of any loader.
    _hand_made: Shares | None = None

    def _shares(self) -> Shares | None:
        entry = self.gradient_state.loaders.of_outputs()
        return self._hand_made if entry is None else _counted(entry)

    def _trained_shares(self) -> Shares | None:
        """The same, where a backward pass begins."""
        entry = self.gradient_state.loaders.of_loss()
        if entry is None:
            return self._hand_made
        entry.streams.note_backward()
        return _counted(entry)

    @property
    def numpy_random(self) -> Any:
        """`numpy.random`, whose numbers differ between ranks: for noise that each rank draws for its batch.

        On the main process it is `numpy.random` itself, with the script's seed. `numpy.random` alone draws the same on
        every rank, so that what a script decides by it is decided alike.
        """
        return rank_numpy.own()

    def shard_batch(self, *parts: Any) -> Any:
        """This process's share of a batch that the script made by hand, for training loops without a DataLoader.

        The loss is then that of the whole batch: `backward` weighs the shares, `gather_for_metrics` puts them together.
        With one process the parts come back as they are.

        Args:
            *parts: tensors (or containers of them) with one entry a sample, such as inputs and targets.

        Returns:
            The shares in the order of the arguments; a single part comes back alone.

        Raises:
            ValueError: no part has a first dimension.
        """
        batch, self._hand_made = own_share_of(parts)
        return batch if len(parts) != 1 else batch[0]

    def gather(self, tensor: Any) -> Any:
        """See `collectives.gather`."""
        return collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gather what was computed on the current batch, each sample of the loader exactly once.

        Args:
            input_data: tensors with one entry a sample, or lists of objects with one a sample, in containers of any
                kind, where None stays None; with `use_gather_object` one list of objects.
            use_gather_object: gather as objects.
        """
        input_data = self.backend.drop_padding(input_data)
        if self.process.data_ranks == 1:
            return input_data
        shares = self._shares()
        items = leaves(input_data)
        if items and all(x is None for x in items) and not isinstance(input_data, list):
            return input_data  # such as an output that the model does not have
        if not use_gather_object and _is_mixed(input_data, items):
            return self._gather_each(input_data)
        if any(is_array(x) for x in items) and not use_gather_object:
            # NumPy's arrays are gathered like the tensors they are made from.
            kinds = [is_array(x) for x in items]
            tensors = map_leaves(lambda x: torch.from_numpy(x) if is_array(x) else x, input_data)
            arrays = iter(kinds)
            return map_leaves(lambda x: x.numpy() if next(arrays) else x, self.gather_for_metrics(tensors))
        if use_gather_object or not items or not all(isinstance(x, torch.Tensor) for x in items):
            repeated = shares is not None and not shares.sizes[self.process.data_rank]
            own = list(input_data) if isinstance(input_data, (list, tuple)) else [input_data]
            return collectives.gather_object([] if repeated else own)
        if shares is None or (len(set(shares.sizes)) == 1 and shares.sizes[0]):
            return collectives.gather(input_data)
        return collectives.gather_sized(input_data, shares.sizes, shares.whole)

    def _gather_each(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: self.gather_for_metrics(value) for key, value in data.items()}
        return honor_type(data, [self.gather_for_metrics(value) for value in data])

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """See `collectives.reduce`."""
        return collectives.reduce(tensor, reduction, scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        """See `collectives.pad_across_processes`."""
        return collectives.pad_across_processes(tensor, dim, pad_index, pad_first)

    def set_trigger(self) -> None:
        """Set a flag on all ranks, to be seen by `check_trigger`."""
        self.flag_tensor = torch.tensor(1)

    def check_trigger(self) -> bool:
        """Whether any rank called `set_trigger` since the last check; every rank must ask."""
        flag, self.flag_tensor = self.flag_tensor, None
        return collectives.on_any_rank(flag is not None)


def _counted(entry: Any) -> Shares | None:
    """The shares of a pass's batch. Where each rank only knows its share, they ask each other, here where all come."""
    shares: Shares | None = entry.shares
    if shares is not None and shares.own is not None:
        counts = collectives.gather(torch.tensor([shares.own])).tolist()
        sizes = tuple(n if own else 0 for n, own in zip(counts, shares.sizes, strict=True))
        entry.shares = shares = replace(shares, sizes=sizes, own=None)
    return shares


def _is_mixed(data: Any, items: list[Any]) -> bool:
    """Whether a container holds tensors and something else, or several lists: its parts are gathered one by one."""
    if not isinstance(data, (tuple, list, Mapping)) or not items:
        return False
    tensors = sum(isinstance(x, torch.Tensor) or is_array(x) for x in items)
    if isinstance(data, list):
        return 0 < tensors < len(items)
    parts = data.values() if isinstance(data, Mapping) else data
    return tensors < len(items) and (tensors > 0 or all(isinstance(x, (list, tuple)) for x in parts))
