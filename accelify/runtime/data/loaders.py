"""Prepared data loaders.

With one process the script's DataLoader is iterated as it is: nothing is fetched ahead and nothing drawn from a
random generator. With several, a copy of the loader draws this rank's share of every batch.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..nested import send_to_device
from ..pickled import WrittenAsOriginal
from ..state import GradientState, PartialState
from .index_streams import length_of, shuffles
from .iterable import IterableDatasetShard, SharedCollate
from .passes import LoaderIterator
from .random_state import (
    Resume,
    encode_snapshot,
    open_pass,
    share_order,
    synchronize_rng_states,
)
from .sharding import (
    BatchSamplerShard,
    Shares,
    SkipBatchSampler,
    WholeBatchShard,
)
from .whole_tensors import WholeTensors, reads_rows
from .workers import ReadingApart, may_draw


class DataLoaderShard(WrittenAsOriginal, DataLoader[Any]):
    """A prepared loader: a DataLoader in all that scripts ask of one, with batches placed and sharded.

    Args:
        base_dataloader: what is iterated.
        device: where batches go; None leaves them.
        rng_types: generators to synchronise before each pass, besides what the order needs.
        non_blocking: do not wait for copies to the device, as from pinned memory never.
    """

    # torch's __init__ is left out on purpose: it would build new samplers and workers.
    def __init__(
        self,
        base_dataloader: DataLoader[Any],
        device: torch.device | None = None,
        rng_types: list[Any] | None = None,
        non_blocking: bool = False,
        original: DataLoader[Any] | None = None,
        sharded: bool = False,
    ) -> None:
        values = self.__dict__
        values["base_dataloader"] = base_dataloader
        values["original"] = original if original is not None else base_dataloader
        values["device"] = device
        values["rng_types"] = rng_types
        # A copy from pinned memory is waited for by nobody but the device, as scripts that pin it have it: nothing here
        # holds the batch on the host any longer, and torch keeps its memory until the copy is done.
        pinned = base_dataloader.pin_memory and device is not None and device.type == "cuda"
        values["non_blocking"] = non_blocking or pinned
        values["gradient_state"] = GradientState()
        values["epoch"] = 0
        # Whether a backward pass was seen in a pass whose order is that of the data.
        values["trained"] = False
        values["_resume"] = None
        shard = index_source(base_dataloader)
        values["shard"] = (
            shard if sharded and isinstance(shard, (BatchSamplerShard, WholeBatchShard)) else None
        )
        streams = sharded and isinstance(base_dataloader.dataset, IterableDatasetShard)
        values["_draws_while_read"] = streams and base_dataloader.num_workers == 0
        values["_carries_shares"] = isinstance(base_dataloader.collate_fn, SharedCollate)
        values["_sharded"] = sharded
        # CPU batches already are where they belong; walking over them would cost and could copy containers.
        values["_moves"] = device is not None and device.type != "cpu"
        # How an engine lays a batch out once it is on the device; None: as it is.
        values["layout"] = None
        # How an engine places the batches of a pass itself, ahead of the loop: f(batches, loader); None: it does not.
        values["feed"] = None
        # Called where a loop that trains is done with a batch, on every rank: f(at_end); None: nothing is.
        values["between_batches"] = None
        values["replay_workers"] = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "base_dataloader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["base_dataloader"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self.base_dataloader, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.original!r})"

    def __len__(self) -> int:
        return len(self.base_dataloader)

    def __iter__(self) -> Any:
        return LoaderIterator(self)

    # For a loader class of the script that is opened by `with`.
    def __enter__(self) -> Any:
        original: Any = self.original
        entered = original.__enter__()
        return self if entered is original else entered

    def __exit__(self, *error: Any) -> Any:
        original: Any = self.original
        return original.__exit__(*error)

    def _skips_by_index(self) -> bool:
        """Whether batches can be left out without loading them."""
        if self._sharded:
            return isinstance(self.shard, BatchSamplerShard)
        base = self.base_dataloader
        return base.batch_sampler is not None and not isinstance(base.dataset, IterableDataset)

    def _workers_may_draw(self) -> bool:
        """Whether going on in the middle of a pass means that workers load the first batches again.

        Nothing but that brings a worker back to where it was: its generators, those that the dataset made for itself,
        what the dataset counted.
        """
        return bool(self.replay_workers) and self.base_dataloader.num_workers > 0

    def _start_pass(self, skip: int, after_skip: Callable[[], None] | None) -> Iterator[Any]:
        base = self.base_dataloader
        if skip or after_skip is not None:
            if self._sharded:
                self.shard.skip_batches, self.shard.after_skip = skip, after_skip
            else:
                sampler = SkipBatchSampler(base.batch_sampler, skip, after_skip)
                return iter(copy_with(base, batch_sampler=sampler))
        return iter(base)

    def _read_apart(self, base: Any, number: int, batches: int) -> None:
        """Have a pass read its samples on separate random streams of this rank, where it reads them here and alone;
        those that are rows of tensors it reads in one piece."""
        fetcher = getattr(base, "_dataset_fetcher", None)
        if self.shard is not None and self._sharded and fetcher is not None:
            by_index = not isinstance(self.original.dataset, IterableDataset)
            if by_index and may_draw(fetcher.dataset, fetcher.collate_fn):
                base._dataset_fetcher = ReadingApart(fetcher, number, PartialState().data_rank, batches)
            elif by_index and reads_rows(fetcher):
                base._dataset_fetcher = WholeTensors(fetcher)

    def position_state(self) -> dict[str, Any]:
        """Where the pass in progress is, and all that its order depends on; for checkpoints."""
        iterator = self.in_progress
        return {
            "epoch": self.epoch,
            "sampler_epoch": getattr(self._sampler(), "epoch", None)
            if iterator is None
            else iterator.sampler_epoch,
            "sampler_seed": getattr(self._sampler(), "initial_seed", None),
            "generators": [g.get_state() for g in self._generators()],
            "position": None if iterator is None else iterator.position,
            "beginning": None if iterator is None else encode_snapshot(iterator.beginning),
            "trained": self.trained if iterator is None else iterator.streams.trained_before,
            "parted": iterator is not None and iterator.streams.parted,
        }

    def state_dict(self) -> dict[str, Any]:
        """The loader's position, for `load_state_dict`; `save_state` and `load_state` save it by themselves.

        With one process that of a loader which has a state, such as torchdata's StatefulDataLoader.
        """
        own = None if self._sharded else getattr(self.base_dataloader, "state_dict", None)
        return {"accelify": self.position_state()} if own is None else own()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass continue after the batch at which `state_dict` was taken, on as many ranks as then.

        Args:
            state_dict: from `state_dict`, on each rank its state, or rank 0's.

        Raises:
            ValueError: it is that of another kind of loader, such as one that was not prepared.
        """
        own = None if self._sharded else getattr(self.base_dataloader, "load_state_dict", None)
        if own is not None and "accelify" not in state_dict:
            own(state_dict)
        elif "accelify" in state_dict:
            self.resume_from(state_dict["accelify"], None)
        else:
            raise ValueError(
                "load_state_dict of a prepared loader was given the state of another kind of loader: give it what "
                "state_dict() of the prepared one returned, on the same number of processes"
            )

    def resume_from(self, state: dict[str, Any], random: dict[str, Any] | None) -> None:
        """Let the next pass go on where `position_state` was taken, then with the random states `random`; None: with
        those that are there by then."""
        values = self.__dict__
        values["epoch"], values["trained"] = state["epoch"], state.get("trained", False)
        sampler = self._sampler()
        if state["sampler_epoch"] is not None and hasattr(sampler, "epoch"):
            sampler.epoch = state["sampler_epoch"]
        if state["sampler_seed"] is not None and hasattr(sampler, "initial_seed"):
            sampler.initial_seed = state["sampler_seed"]
        for generator, saved in zip(self._generators(), state["generators"], strict=False):
            generator.set_state(saved)
        values["_resume"] = None if state["position"] is None else Resume(self._generators(), state, random)
        if self.epoch and self.base_dataloader.num_workers and self.base_dataloader.persistent_workers:
            PartialState().print(
                "accelify: a loader with persistent_workers=True goes on with new workers, so the random numbers that "
                "they draw are not those of the run that was stopped; with persistent_workers=False they are"
            )

    def _take_resume(self) -> Resume | None:
        resume = self._resume
        self.__dict__["_resume"] = None
        return resume  # type: ignore[no-any-return]

    @property
    def total_batch_size(self) -> int | None:
        """Samples of all processes in one step."""
        size = self.original.batch_size
        if size is None:
            return None
        split = bool(self.shard is not None and self.shard.split_batches)
        return int(size) if split else int(size) * PartialState().data_ranks

    @property
    def total_dataset_length(self) -> int:
        return len(self.original.dataset)

    @property
    def in_progress(self) -> LoaderIterator | None:
        """The pass of this loader that began last and has not ended."""
        for iterator in reversed(self.gradient_state.loaders):
            if iterator.loader.base_dataloader is self.base_dataloader:
                return iterator  # type: ignore[no-any-return]
        return None

    @property
    def end_of_dataloader(self) -> bool:
        iterator = self.in_progress
        return iterator is not None and bool(iterator.at_end)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch that begins to samplers and dataset, if they take it."""
        self.epoch = epoch
        batch_sampler = self.original.batch_sampler
        parts: tuple[Any, ...] = (
            batch_sampler,
            getattr(batch_sampler, "sampler", None),
            self.original.sampler,
            self.original.dataset,
        )
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def _sampler(self) -> Any:
        return getattr(self.original.batch_sampler, "sampler", self.original.sampler)

    def _generators(self) -> list[torch.Generator]:
        original = self.original
        batch_sampler = original.batch_sampler
        holders = (original, original.sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
        found: list[torch.Generator] = []
        for holder in holders:
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator) and all(generator is not g for g in found):
                found.append(generator)
        return found

    def _before_pass(self) -> int | None:
        """Make the ranks' orders agree; returns what `move_apart` needs afterwards, None if nothing is to move."""
        if PartialState().num_processes == 1:
            return None
        if self.rng_types:
            generators = self._generators()
            wanted = [t for t in self.rng_types if t != "generator" or generators]
            synchronize_rng_states(wanted, generators[0] if generators else None)
        if not self._sharded:
            return None
        if self._draws_while_read:
            return None
        if self.shard is None or self.trained or shuffles(index_source(self.original)):
            return share_order(self._generators())
        return None

    def _open_pass(self) -> int | None:
        """The number of a pass that ranks read on separate streams and end together."""
        if not self._ends_together:
            return None
        self.__dict__["_pass"] = open_pass(self.__dict__.get("_pass"))
        return self.__dict__["_pass"]  # type: ignore[no-any-return]

    @property
    def _ends_together(self) -> bool:
        """Whether the ranks reach the end of a pass after the same number of batches."""
        shard = self.shard if self.shard is not None else self.base_dataloader.dataset
        return bool(getattr(shard, "even_batches", True))

    def _after_pass(self) -> None:
        self.__dict__["epoch"] += 1

    def _open_shares(self) -> deque[Shares] | None:
        return self.shard.shares if self.shard is not None else None

    def _expected_batches(self) -> int | None:
        if self._shares_tell_the_end():
            return None
        if isinstance(self.original.dataset, IterableDataset) and self._sharded:
            return None
        return self._length()

    def _length(self) -> int | None:
        return length_of(self.base_dataloader)

    def _shares_tell_the_end(self) -> bool:
        return self.shard is not None

    def _may_fetch_ahead(self) -> bool:
        # Fetching ahead changes the order of random draws in a loader without workers. Where the end cannot be
        # known otherwise, only an accumulation that must end with the loader is worth that.
        base = self.base_dataloader
        if self._sharded or (base.num_workers > 0 and isinstance(base.dataset, IterableDataset)):
            return True
        plugin = self.gradient_state.plugin
        return bool(plugin.num_steps > 1 and plugin.sync_with_dataloader)

    def _place(self, batch: Any) -> Any:
        if self._moves:
            batch = send_to_device(batch, self.device, self.non_blocking)
        return batch if self.layout is None else self.layout(batch, self)


def index_source(loader: DataLoader[Any]) -> Any:
    """What a loader draws from: its batch sampler, or its sampler where it does not make batches."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def copy_with(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """A copy of a loader with other parts. torch forbids setting them, so they go past its guard; a subclass keeps
    its behaviour like this."""
    clone = copy.copy(loader)
    clone.__dict__.update(changes, _iterator=None)
    return clone
