"""The passes of prepared loaders that are open, in the order that tells whose batch a loss belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .nested import leaves

if TYPE_CHECKING:
    from .data.sharding import Shares


@dataclass(frozen=True, slots=True)
class _Left:
    """The place of a pass that ended: before `follower`, which stood at `position` then."""

    follower: Any
    position: int


class OpenPasses(list[Any]):
    """Passes in the order in which they began; that of the last one's loader is what the loop works on.

    A pass that begins anew in the middle of another one's, as `more = iter(unlabelled)` where the shorter of two
    loaders has run out, stands where the one before it stood: the loop around is still that of the other loader.

    Where several are open, as in `for one, two in zip(first, second)` with a step for each, a loss belongs to the pass
    whose batch the models were given since the backward before; where that is no single one, to the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[int, _Left] = {}
        self._met: list[Shares] = []
        self._spent = False

    def begin(self, entry: Any, base: Any) -> None:
        """A pass over a loader of the script's own begins."""
        left = self._left.pop(id(base), None)
        place = self._index(left.follower) if left is not None else None
        # In a later round of the other loop it is a loop of its own that begins.
        if left is None or place is None or left.follower.position != left.position:
            place = len(self)
        self.insert(place, entry)

    def end(self, entry: Any, base: Any) -> bool:
        """A pass is over; returns whether it was open."""
        index = self._index(entry)
        if index is None:
            return False
        del self[index]
        # One that is collected together with others may find them gone.
        with contextlib.suppress(ReferenceError):
            self._keep_place(index, base)
        return True

    def meet(self, inputs: Any) -> None:
        """A model is given inputs, with gradients on."""
        if len(self) < 2 or not torch.is_grad_enabled():
            return
        if self._spent:
            self._met, self._spent = [], False
        places = set(storages(inputs))
        for entry in self:
            if entry.shares is not None and places & entry.storages:
                self._met.append(entry.shares)

    def shares_of_loss(self) -> Shares | None:
        """Those of the batch that a backward pass begins for; None where there is none, or none that is shared."""
        met, self._spent = {id(shares): shares for shares in self._met}, True
        if len(self) > 1 and len(met) == 1:
            return next(iter(met.values()))
        return self[-1].shares if self else None

    def _keep_place(self, index: int, base: Any) -> None:
        if index == len(self):
            return
        # `more = iter(loader)`: the new pass begins before the old one is dropped.
        if self[-1].position == 0 and self[-1].loader.base_dataloader is base:
            self.insert(index, self.pop())
        else:
            self._left[id(base)] = _Left(self[index], self[index].position)

    def _index(self, entry: Any) -> int | None:
        """Where a pass stands, told by identity: what is held is a weak proxy, and equality would ask the pass."""
        return next((i for i, known in enumerate(self) if known is entry), None)


def storages(tensors: Any) -> Iterator[int]:
    """Where the tensors in a container lie: what a script makes of a batch by `view` lies where the batch does."""
    for one in leaves(tensors):
        if isinstance(one, torch.Tensor):
            # Sparse ones have no storage of their own.
            with contextlib.suppress(RuntimeError):
                yield one.untyped_storage().data_ptr()
