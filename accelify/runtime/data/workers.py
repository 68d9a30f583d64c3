"""Reading samples in worker processes, or without them: separate random streams on every rank."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import (
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)


class WorkersApart:
    """A `worker_init_fn` that gives the workers of a rank above 0 other streams than rank 0's have.

    The order of samples needs the same random state on every rank where a pass begins, and workers are seeded from
    that: without this, random augmentation would repeat itself from rank to rank.

    Args:
        worker_init_fn: the script's, called afterwards; what it seeds is made different on each rank, too.
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
            # torch does not allow setting it, and scripts seed their generators with it.
            object.__setattr__(info, "seed", seed)
            torch.manual_seed(seed)
            _seed_host(seed)
        if self.worker_init_fn is not None:
            before = _states()
            self.worker_init_fn(worker)
            self._seeded_alike(before)

    def _seeded_alike(self, before: tuple[Any, ...]) -> None:
        """Move on what the script's function has seeded by the worker's number, which is the same on every rank."""
        by_torch, by_python, by_numpy = (a != b for a, b in zip(_states(), before, strict=True))
        far = self.rank * 0x9E3779B97F4A7C15
        if by_torch:
            torch.manual_seed((torch.initial_seed() + far) % 2**63)
        if by_python:
            random.seed(random.getrandbits(63) + far)
        if by_numpy:
            import numpy as np

            np.random.seed([int(np.random.randint(2**31)), self.rank, 1])


class ReadingApart:
    """Fetches samples in the main process on separate streams of Python's and NumPy's generators.

    Rank by rank they differ: otherwise a data set that picks its samples by them would give all ranks the same ones.
    The script's streams stay where they are, the same on every rank, so that ranks go on deciding alike. Each batch
    has separate streams, for a pass that is resumed in its middle.

    Args:
        fetcher: the loader's.
        number: of the pass, the same on every rank.
        rank: of this process.
        batches: done before.
    """

    def __init__(self, fetcher: Any, number: int, rank: int, batches: int) -> None:
        self.fetcher = fetcher
        self.seed = number + rank * 0x9E3779B97F4A7C15
        self.batches = batches
        self._numpy = _NumpyApart() if "numpy" in sys.modules else None

    def __getattr__(self, name: str) -> Any:
        # Loaders that keep a state look into their fetcher.
        if name.startswith("__") or name == "fetcher":
            raise AttributeError(name)
        return getattr(self.fetcher, name)

    def fetch(self, indices: Any) -> Any:
        """The batch of some indices."""
        own = random.getstate()
        if self._numpy is not None:
            self._numpy.enter()
        _seed_host((self.seed + self.batches * 0xBF58476D1CE4E5B9) % 2**63)
        self.batches += 1
        try:
            return self.fetcher.fetch(indices)
        finally:
            random.setstate(own)
            if self._numpy is not None:
                self._numpy.leave()


class _NumpyApart:
    """NumPy's functions on a generator of this object alone. The script's is put aside whole: loading its state again
    takes longer than many a batch does."""

    def __init__(self) -> None:
        import numpy as np

        self._random: Any = np.random
        self._other: Any = np.random.MT19937(0)
        self._own: Any = None
        self._state: Any = None

    def enter(self) -> None:
        self._own, self._state = self._random.get_bit_generator(), self._random.get_state(legacy=False)
        self._random.set_bit_generator(self._other)

    def leave(self) -> None:
        self._random.set_bit_generator(self._own)
        # Normal numbers are drawn in pairs, of which the second is not in the generator's state.
        if self._state["has_gauss"]:
            self._random.set_state(self._state)


def may_draw(dataset: Any, collate_fn: Any) -> bool:
    """Whether reading a batch may draw random numbers; False: it is torch's code, which does not.

    Args:
        dataset: what samples are read from by their indices.
        collate_fn: what makes a batch of them.
    """
    return collate_fn not in (default_collate, default_convert) or _item_may_draw(dataset)


def _item_may_draw(dataset: Any) -> bool:
    # Those alone, no kinds of them that a script has made.
    kind = type(dataset)
    if kind is TensorDataset:
        return any(type(tensor) is not torch.Tensor for tensor in dataset.tensors)
    if kind is Subset:
        return _item_may_draw(dataset.dataset)
    if kind is ConcatDataset:
        return any(map(_item_may_draw, dataset.datasets))
    if kind is StackDataset:
        parts = dataset.datasets
        return any(map(_item_may_draw, parts.values() if isinstance(parts, dict) else parts))
    return True


def _states() -> tuple[Any, ...]:
    """The states of torch's, Python's and NumPy's generators, to compare."""
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        None if drawn is None else (drawn[1].tobytes(), *drawn[2:]),
    )


def _seed_host(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy as np

        # Python's generator seeds itself in the same way: with the same numbers the two would agree.
        np.random.seed([seed % 2**32, seed >> 32, 1])
