"""Batches on their way to XLA devices: padded to a fixed shape if asked for, and put there ahead of the loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ..data.index_streams import RANDOM_SAMPLERS, SeedableRandomSampler
from ..nested import find_batch_size, honor_type, is_namedtuple
from .xla_plugin import XLAPlugin

if TYPE_CHECKING:
    from ..data.loaders import DataLoaderShard

_END = object()


class Feed:
    """The batches of one pass, placed.

    Args:
        source: the loader's batches.
        place: puts a batch on the device; returns it and how many samples were added to it.
        settle: called in the loop's thread before a batch is fetched.
        ahead: batches that a thread fetches and places before the loop asks for them; 0: the loop does it itself.
    """

    def __init__(
        self,
        source: Iterator[Any],
        place: Callable[[Any], tuple[Any, int]],
        settle: Callable[[], None],
        ahead: int,
    ) -> None:
        self._source = source
        self._place = place
        self._settle = settle
        self._fetched = 0
        # How many samples were added to which batch, counted from 1 as the loop sees them.
        self._added: dict[int, int] = {}
        self._queue: queue.Queue[Any] | None = queue.Queue(ahead) if ahead else None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        self._settle()
        item = self._own() if self._queue is None else self._fed()
        if item is _END:
            raise StopIteration
        batch, added = item
        self._fetched += 1
        if added:
            self._added[self._fetched] = added
        return batch

    def added_to(self, batch: int) -> int:
        """Samples added to the batch of that number, the first being 1."""
        return self._added.get(batch, 0)

    def _own(self) -> Any:
        try:
            batch = next(self._source)
        except StopIteration:
            return _END
        return self._place(batch)

    def _fed(self) -> Any:
        assert self._queue is not None
        if self._stopped.is_set():
            return _END
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="accelify-feed", daemon=True)
            self._thread.start()
        item = self._queue.get()
        if item is _END or isinstance(item, _Failed):
            self._stopped.set()
        if isinstance(item, _Failed):
            raise item.error
        return item

    def _work(self) -> None:
        item: Any = None
        try:
            while item is not _END and not self._stopped.is_set():
                item = self._own()
                self._put(item)
        except BaseException as error:
            # An exception in the thread would be seen by nobody: the loop raises it.
            self._put(_Failed(error))

    def _put(self, item: Any) -> None:
        assert self._queue is not None
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def close(self) -> None:
        """Stop fetching, and return when nothing touches the loader any more: its workers may serve the next pass."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


class _Failed:
    """What the thread raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def may_feed_ahead(loader: DataLoaderShard) -> bool:
    """Whether a thread may fetch this loader's batches without changing the order of any random draws: workers load
    them, and the sampler has drawn when a pass begins."""
    original = loader.original
    if original.num_workers == 0:
        return False
    if isinstance(original.dataset, IterableDataset):
        return True
    sampler = getattr(original.batch_sampler, "sampler", original.sampler)
    if original.batch_sampler is not None and type(original.batch_sampler) is not BatchSampler:
        return False
    if isinstance(sampler, RandomSampler) and sampler.replacement:
        return False
    return type(sampler) in (*RANDOM_SAMPLERS, SequentialSampler, SeedableRandomSampler, DistributedSampler)


class Padding:
    """Fills batches up to a fixed shape, so that what is added counts for nothing.

    Samples are added by repeating the last one, lengths by zeros; entries that tell the loss what counts get the value
    it leaves out. So a mean over the samples that count is that of the batch as it was.

    Args:
        plugin: the settings.
    """

    def __init__(self, plugin: XLAPlugin) -> None:
        self.plugin = plugin

    @property
    def wanted(self) -> bool:
        return self.plugin.pad_to_fixed_shape or bool(self.plugin.pad_lengths)

    def pad(self, batch: Any, loader: DataLoaderShard) -> tuple[Any, int]:
        """The batch in a fixed shape, and how many samples were added.

        Raises:
            ValueError: the shape is not known, too small, or no entry of the batch marks what counts.
        """
        samples = find_batch_size(batch)
        if samples is None:
            return batch, 0
        missing = 0
        if self.plugin.pad_to_fixed_shape:
            missing = self._size(loader) - samples
            if missing < 0:
                raise ValueError(
                    f"pad_to_fixed_shape: a batch has {samples} samples, more than the loader's batch size "
                    f"{samples + missing}"
                )
        lengths = self._lengths(batch, samples) if self.plugin.pad_lengths else None
        if missing and not self._entries(batch):
            names = ", ".join(map(repr, self.plugin.ignore_values)) or "none"
            raise ValueError(
                f"pad_to_fixed_shape: a batch of {samples} samples lacks {missing}, and it has no entry that tells the "
                f"loss what counts (ignore_values names {names}): name it in XLAPlugin(ignore_values={{...}}), such as "
                "{1: -100} for class labels that stand second, or use drop_last=True"
            )
        if not missing and lengths is None:
            return batch, 0
        return self._walk(batch, _Shape(samples, missing, lengths), top=True), missing

    def _size(self, loader: DataLoaderShard) -> int:
        original = loader.original
        size = original.batch_size or getattr(original.batch_sampler, "batch_size", None)
        if not isinstance(size, int):
            raise ValueError(
                "pad_to_fixed_shape needs a loader with a batch_size; this one's batch sampler has none"
            )
        from ..state import PartialState

        ranks = PartialState().num_processes
        return -(-size // ranks) if loader.shard is not None and loader.shard.split_batches else size

    def _lengths(self, batch: Any, samples: int) -> tuple[int, int] | None:
        """The length of dimension 1 and what it is padded to; None where it has that length."""
        telling = [v for k, v in self._entries(batch) if isinstance(v, torch.Tensor)]
        if isinstance(batch, Mapping) and isinstance(batch.get("attention_mask"), torch.Tensor):
            telling.insert(0, batch["attention_mask"])
        found = [t.shape[1] for t in telling if t.ndim > 1 and _follows(t, samples)]
        if not found:
            raise ValueError(
                "pad_lengths: a batch has neither an attention_mask nor an entry of ignore_values with a length, so "
                "what is added would count: give XLAPlugin(ignore_values={...}), or leave pad_lengths out"
            )
        fitting = [n for n in self.plugin.pad_lengths if n >= found[0]]
        if not fitting:
            raise ValueError(
                f"a batch of length {found[0]} does not fit pad_lengths={self.plugin.pad_lengths}: add a length, or "
                "cut the samples before"
            )
        return None if fitting[0] == found[0] else (found[0], fitting[0])

    def _entries(self, batch: Any) -> list[tuple[Any, Any]]:
        """The entries of a batch that mark what counts."""
        wanted = self.plugin.ignore_values
        if isinstance(batch, Mapping):
            return [(key, batch[key]) for key in wanted if key in batch]
        if isinstance(batch, (tuple, list)):
            named = dict(zip(getattr(batch, "_fields", ()), batch, strict=False)) | dict(enumerate(batch))
            return [(key, named[key]) for key in wanted if key in named]
        return []

    def _walk(self, item: Any, shape: _Shape, top: bool, fill: Any = None) -> Any:
        if isinstance(item, torch.Tensor):
            return shape.fill(item, fill)
        values = self.plugin.ignore_values if top else {}
        if isinstance(item, Mapping):
            found = {k: self._walk(v, shape, False, values.get(k, fill)) for k, v in item.items()}
            return found if type(item) is dict else type(item)(found)  # type: ignore[call-arg]
        if isinstance(item, (tuple, list)):
            names: Any = item._fields if is_namedtuple(item) else range(len(item))  # type: ignore[union-attr]
            return honor_type(
                item,
                [
                    self._walk(v, shape, False, values.get(name, values.get(i, fill)))
                    for i, (name, v) in enumerate(zip(names, item, strict=True))
                ],
            )
        return item


@dataclass(frozen=True)
class _Shape:
    """What is added to a batch of `samples`: `missing` samples, and in dimension 1 from one length to another."""

    samples: int
    missing: int
    lengths: tuple[int, int] | None

    def fill(self, tensor: torch.Tensor, value: float | None) -> torch.Tensor:
        """A tensor of the batch with what is added; None repeats the last sample and lengthens by zeros."""
        if not _follows(tensor, self.samples):
            return tensor
        if self.missing:
            last = tensor[-1:] if value is None else torch.full_like(tensor[-1:], value)
            tensor = torch.cat([tensor, last.expand(self.missing, *tensor.shape[1:])])
        if self.lengths is not None and tensor.ndim > 1 and tensor.shape[1] == self.lengths[0]:
            size = list(tensor.shape)
            size[1] = self.lengths[1] - self.lengths[0]
            tensor = torch.cat([tensor, tensor.new_full(size, 0 if value is None else value)], dim=1)
        return tensor


def _follows(tensor: torch.Tensor, samples: int) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] == samples
