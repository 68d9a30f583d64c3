"""Leaving out the first batches of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from .loaders import DataLoaderShard, copy_with
from .passes import LoaderIterator
from .sharding import SkipBatchSampler

__all__ = ["SkipBatchSampler", "skip_first_batches"]


class _ResumedLoader(DataLoaderShard):
    """A prepared loader without its first batches."""

    def __init__(self, loader: DataLoaderShard, skip: int) -> None:
        self.__dict__.update(loader.__dict__)
        self.__dict__["skip"] = skip

    def __len__(self) -> int:
        return max(0, len(self.base_dataloader) - int(self.skip))

    def __iter__(self) -> Any:
        return LoaderIterator(self, self.skip)


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """A loader that yields what `dataloader` would after its first `num_batches` batches.

    Args:
        dataloader: a prepared loader, or one of torch's.
        num_batches: batches to leave out, as this rank counts them.

    Raises:
        TypeError: it is not a data loader.
    """
    if isinstance(dataloader, DataLoaderShard):
        return _ResumedLoader(dataloader, num_batches)
    if not isinstance(dataloader, DataLoader):
        raise TypeError(f"skip_first_batches needs a data loader, not {type(dataloader).__name__}")
    if isinstance(dataloader.dataset, IterableDataset) or dataloader.batch_sampler is None:
        return _SkippingLoader(dataloader, num_batches)
    return copy_with(dataloader, batch_sampler=SkipBatchSampler(dataloader.batch_sampler, num_batches))


class _SkippingLoader:
    """A loader that can only be read from the front: its first batches are read and thrown away."""

    def __init__(self, loader: DataLoader[Any], skip: int) -> None:
        self.loader = loader
        self.skip_batches = skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return max(0, len(self.loader) - int(self.skip_batches))

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.loader):
            if number >= self.skip_batches:
                yield batch
