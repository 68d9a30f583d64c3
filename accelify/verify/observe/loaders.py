"""The script's loaders: where each is made, which samples each batch has, and which loaders are sharded.

For a conversion in which each of N processes takes the script's batch size, the run to compare with is the original
with N batches made one: that is what the N processes see together in one step. `scaled` names the loaders for which
that is done.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, dataloader

import accelify
from accelify.verify.observe.context import Context
from accelify.verify.observe.sites import Site

LoaderKey = tuple[str, int, int]
"""File and line where a loader is made, and the how manyth made there, from 0."""

INDICES_WRITTEN = 500_000
"""Indices up to which each batch's are written down; later batches only say how many they are."""
_RUNTIMES = (
    os.path.join(os.path.dirname(os.path.realpath(accelify.__file__)), "runtime") + os.sep,
    "accelerate",
)


@dataclass
class _Pass:
    """One pass over a loader: the indices drawn and not yet taken by the script."""

    key: LoaderKey
    number: int
    drawn: list[Any]
    taken: int = 0


class LoaderWatch:
    """Watches the loaders of one process.

    Args:
        context: where events are written.
        scaled: keys of the loaders whose batches are made larger.
        factor: how many batches are made one.
    """

    def __init__(self, context: Context, scaled: list[LoaderKey], factor: int) -> None:
        self.context = context
        self.scaled = set(map(tuple, scaled))
        self.factor = factor
        self.made: dict[Site, int] = {}
        self.passes: dict[LoaderKey, int] = {}
        self.written = 0

    def install(self) -> None:
        """Watch from now on."""
        loader: Any = DataLoader
        loader.__init__ = self._watched_init(loader.__init__)
        iterator: Any = dataloader._BaseDataLoaderIter
        iterator.__init__ = self._watched_pass(iterator.__init__)
        iterator._next_index = self._watched_index(iterator._next_index)
        iterator.__next__ = self._watched_next(iterator.__next__)

    def watch_preparation(self, accelerator: Any) -> None:
        """Note which loaders are passed to a class's `prepare_data_loader`."""
        accelerator.prepare_data_loader = self._watched_preparation(accelerator.prepare_data_loader)

    def _watched_init(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(loader: Any, *args: Any, **kwargs: Any) -> None:
            function(loader, *args, **kwargs)
            if "accelify_key" in loader.__dict__ or _inside_a_runtime(sys._getframe(1)):
                return
            site = self.context.sites.here()
            if site is None:
                return
            number = self.made.get(site, 0)
            self.made[site] = number + 1
            key: LoaderKey = (*site, number)
            loader.__dict__["accelify_key"] = key
            self.context.emit("made_loader", key=list(key))
            if key in self.scaled and self.factor > 1:
                enlarge(loader, self.factor)

        return watched

    def _watched_preparation(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(accelerator: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
            key = getattr(data_loader, "__dict__", {}).get("accelify_key")
            if key is not None:
                configuration = getattr(accelerator, "dataloader_config", accelerator)
                split = bool(getattr(configuration, "split_batches", False))
                self.context.emit("prepared_loader", key=list(key), split=split)
            return function(accelerator, data_loader, *args, **kwargs)

        return watched

    def _watched_pass(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(iterator: Any, loader: Any) -> None:
            key = loader.__dict__.get("accelify_key")
            if key is not None:
                number = self.passes.get(key, 0)
                self.passes[key] = number + 1
                iterator.accelify_pass = _Pass(key, number, [])
                self.context.emit("pass_begun", key=list(key), number=number, length=_length(loader))
            function(iterator, loader)

        return watched

    def _watched_index(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(iterator: Any) -> Any:
            index = function(iterator)
            current = getattr(iterator, "accelify_pass", None)
            if current is not None:
                current.drawn.append(index)
            return index

        return watched

    def _watched_next(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(iterator: Any) -> Any:
            current: _Pass | None = getattr(iterator, "accelify_pass", None)
            try:
                batch = function(iterator)
            except StopIteration:
                if current is not None:
                    self.context.emit("pass_ended", key=list(current.key), number=current.number)
                raise
            except Exception:
                if current is not None and current.key in self.scaled:
                    self.context.emit("not_merged", key=list(current.key))
                raise
            self.context.sites.note_batch()
            if current is not None:
                self._write(current)
            return batch

        return watched

    def _write(self, current: _Pass) -> None:
        position = current.taken
        current.taken += 1
        indices = current.drawn[position] if position < len(current.drawn) else None
        if position < len(current.drawn):
            current.drawn[position] = None
        known = _integers(indices)
        if known is not None:
            self.written += len(known)
        self.context.emit(
            "batch",
            key=list(current.key),
            number=current.number,
            position=position,
            size=1 if known is None else len(known),
            indices=known if self.written <= INDICES_WRITTEN else None,
        )


class MergedBatches(Sampler[Any]):
    """A batch sampler that gives `factor` batches of another as one; the last may have fewer.

    Args:
        batches: the batch sampler.
        factor: how many make one.
        whole: leave out a last one that does not have all of them.
    """

    def __init__(self, batches: Any, factor: int, whole: bool) -> None:
        self.batches = batches
        self.factor = factor
        self.whole = whole
        self.sampler: Any = getattr(batches, "sampler", None)
        self.drop_last: Any = getattr(batches, "drop_last", False)
        self.batch_size: Any = (getattr(batches, "batch_size", None) or 0) * factor or None

    def __iter__(self) -> Iterator[list[Any]]:
        source = iter(self.batches)
        while group := list(islice(source, self.factor)):
            if self.whole and len(group) < self.factor:
                return
            yield [index for batch in group for index in batch]

    def __len__(self) -> int:
        full, rest = divmod(len(self.batches), self.factor)
        return full + (1 if rest and not self.whole else 0)


def enlarge(loader: Any, factor: int) -> None:
    """Make `factor` batches of a loader one, in place. A loader that does not batch stays as it is."""
    if loader.batch_sampler is None:
        return
    whole = bool(getattr(loader.batch_sampler, "drop_last", False))
    # A DataLoader refuses to have these set after it was made.
    object.__setattr__(loader, "batch_sampler", MergedBatches(loader.batch_sampler, factor, whole))
    if loader.batch_size is not None:
        object.__setattr__(loader, "batch_size", loader.batch_size * factor)


def _length(loader: Any) -> int | None:
    """How many batches a pass has; None where its sampler does not know, and of a stream, which would note the call."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    try:
        return len(loader)
    except Exception:  # whatever a sampler of the script's raises
        return None


def _inside_a_runtime(frame: FrameType | None) -> bool:
    """Whether a runtime makes the loader: there is no frame of the user's between it and here."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_RUNTIMES[0]) or f"{os.sep}{_RUNTIMES[1]}{os.sep}" in file:
            return True
        if not file.startswith("<") and f"{os.sep}torch{os.sep}" not in file:
            return False
        frame = frame.f_back
    return False


def _integers(indices: Any) -> list[int] | None:
    if isinstance(indices, torch.Tensor):
        indices = indices.tolist()
    if isinstance(indices, int):
        return [indices]
    if not isinstance(indices, (list, tuple, range)):
        return None
    numbers = [int(index) for index in indices if isinstance(index, int) or hasattr(index, "__index__")]
    return numbers if len(numbers) == len(indices) else None
