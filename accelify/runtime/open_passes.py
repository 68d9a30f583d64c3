"""The passes of prepared loaders that are open, in the order that decides whose batch a loss belongs to."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .nested import leaves


@dataclass(frozen=True, slots=True)
class _Left:
    """The place of a pass that ended: before `follower`, which was at `position` then."""

    follower: Any
    position: int


class _Choice:
    """Which of several open passes the training loop works on, decided for each batch or each loss.

    A pass that has yielded no batch since the last answer is not it, unless none has: an iterator that a script leaves
    open, such as one for validation, does not take the place of the loop around it.
    """

    def __init__(self) -> None:
        self.last: Any = None
        # How many batches the passes had yielded when the last answer was.
        self._last_position = 0
        self._positions: dict[int, int] = {}
        # The loader of that pass, once the pass is over: its next pass is the loop's again.
        self._loader: Any = None

    def among(self, passes: OpenPasses) -> Any:
        """The pass, without noting that it was asked for; None where none is open."""
        if len(passes) < 2:
            return passes[0] if passes else None
        is_open = passes.index_of(self.last) is not None
        moved = [e for e in passes if e.position != self._position_of(e)]
        if not moved:
            return self.last if is_open else passes[-1]
        if len(moved) == 1:
            return moved[0]
        newest = max(moved, key=lambda e: e.fetched)
        if not is_open:
            return moved[-1]
        if newest is not self.last and id(newest) not in self._positions:
            # A loop has begun in the loop.
            return newest
        return self.last if any(self.last is e for e in moved) else moved[-1]

    def _position_of(self, entry: Any) -> int | None:
        return self._last_position if entry is self.last else self._positions.get(id(entry))

    def note(self, chosen: Any, passes: OpenPasses) -> Any:
        """Take `chosen` for the answer, and return it."""
        self.last = chosen
        if chosen is not None:
            self._last_position = chosen.position
        if len(passes) > 1:
            self._positions = {id(e): e.position for e in passes}
        return chosen

    def begin(self, entry: Any, base: Any) -> None:
        """A pass begins."""
        if self._loader is not None and self._loader() is base:
            self.last, self._last_position, self._loader = entry, entry.position, None

    def go_on(self, entry: Any) -> None:
        """A pass takes the place of one that is over, and is no loop that has begun."""
        self._positions[id(entry)] = entry.position

    def end(self, entry: Any, base: Any) -> None:
        """A pass is over; another one may get its identity."""
        self._positions.pop(id(entry), None)
        if self.last is entry:
            self.last = self._loader = None
            # One that is collected together with its loader may find it gone.
            with contextlib.suppress(ReferenceError, TypeError):
                self._loader = weakref.ref(base)


class OpenPasses(list[Any]):
    """Passes in the order in which they began.

    A pass that starts again in the middle of another one's, as `more = iter(unlabelled)` where the shorter of two
    loaders has run out, is where the one before it was: the loop around is still that of the other loader.

    Where several are open, as in `for one, two in zip(first, second)` with a step for each, a loss belongs to the pass
    whose batch the models got since the backward before. Where that is no single one, as the models got something made
    of a batch, it belongs to the pass that the loop has gone on with (`_Choice`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[int, _Left] = {}
        self._met: list[Any] = []
        self._spent = False
        self._choices = self._of_steps, self._of_losses = _Choice(), _Choice()
        self._fetched = 0
        self._is_warned = False

    def note_fetch(self) -> int:
        """A pass yields a batch; returns its number among the batches of all passes."""
        self._fetched += 1
        return self._fetched

    def of_step(self) -> Any:
        """The pass whose batch a step of an accumulation window begins with; None where none is open."""
        return self._of_steps.note(self._of_steps.among(self), self)

    def of_loop(self) -> Any:
        """The pass that the training loop works on; None where none is open."""
        choice = self._of_steps if self._of_steps.last is not None else self._of_losses
        return choice.among(self)

    def of_outputs(self) -> Any:
        """The pass whose batch a script evaluates: the last begun, unless the training loop has gone on since it gave
        a batch; None where none is open."""
        if len(self) < 2:
            return self[0] if self else None
        trained = (self._of_steps.last, self._of_losses.last)
        later = [e for e in self if e.fetched > self[-1].fetched and any(e is t for t in trained)]
        return later[-1] if later else self[-1]

    def of_loss(self) -> Any:
        """The pass whose batch a backward pass begins for; None where none is open."""
        self._spent = True
        if len(self) < 2:
            return self._of_losses.note(self[0] if self else None, self)
        met = {id(entry): entry for entry in self._met}
        if len(met) == 1:
            (proved,) = met.values()
            if self.index_of(proved) is not None:
                return self._of_losses.note(proved, self)
        chosen = self._of_losses.among(self)
        self._warn(chosen)
        return self._of_losses.note(chosen, self)

    def _warn(self, chosen: Any) -> None:
        """Warn once that it makes a difference which of the passes a loss belongs to, and that nothing proves it."""
        if self._is_warned or chosen.shares is None:
            return
        others = {e.shares.weights for e in self if e.shares is not None and e.shares.sizes}
        if len(others | {chosen.shares.weights}) > 1:
            self._is_warned = True
            warnings.warn(
                "several prepared loaders are being read, and the model was given none of their batches as it is, so "
                "the loss is taken to be that of the loader that the loop went on with: close other iterators "
                "(`del iterator`) before the backward pass, or give the model the batch itself",
                stacklevel=2,
            )

    def begin(self, entry: Any, base: Any) -> None:
        """A pass over a loader of the script begins."""
        left = self._left.pop(id(base), None)
        place = self.index_of(left.follower) if left is not None else None
        # In a later round of the other loop a new loop begins.
        if left is None or place is None or left.follower.position != left.position:
            place = len(self)
        else:
            self._continues(entry)
        for choice in self._choices:
            choice.begin(entry, base)
        self.insert(place, entry)

    def end(self, entry: Any, base: Any) -> bool:
        """A pass is over; returns whether it was open."""
        index = self.index_of(entry)
        if index is None:
            return False
        for choice in self._choices:
            choice.end(entry, base)
        self._met = [known for known in self._met if known is not entry]
        del self[index]
        # One that is collected together with others may find them gone.
        with contextlib.suppress(ReferenceError):
            self._keep_place(index, base)
        return True

    def meet(self, inputs: Any) -> None:
        """A model gets inputs, with gradients on."""
        if len(self) < 2 or not torch.is_grad_enabled():
            return
        if self._spent:
            self._met, self._spent = [], False
        places = set(storages(inputs))
        for entry in self:
            if entry.shares is not None and places & entry.storages:
                self._met.append(entry)

    def _continues(self, entry: Any) -> None:
        """A pass takes the place of one before it, and is no loop that has begun."""
        for choice in self._choices:
            choice.go_on(entry)

    def _keep_place(self, index: int, base: Any) -> None:
        if index == len(self):
            return
        # `more = iter(loader)`: the new pass begins before the old one is dropped.
        if self[-1].position == 0 and self[-1].loader.base_dataloader is base:
            self._continues(self[-1])
            self.insert(index, self.pop())
        else:
            self._left[id(base)] = _Left(self[index], self[index].position)

    def index_of(self, entry: Any) -> int | None:
        """The index of a pass, by identity: the list has a weak proxy, and equality would ask the pass."""
        return next((i for i, known in enumerate(self) if known is entry), None)


def storages(tensors: Any) -> Iterator[int]:
    """Where the tensors in a container are: what a script makes of a batch by `view` is where the batch does."""
    for one in leaves(tensors):
        if isinstance(one, torch.Tensor):
            # Sparse ones have no storage.
            with contextlib.suppress(RuntimeError):
                yield one.untyped_storage().data_ptr()
