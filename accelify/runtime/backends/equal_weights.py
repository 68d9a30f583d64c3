"""Weights that are the same on every rank stay so.

Averaged gradients keep replicas equal as long as nothing but the optimizer changes weights. Scripts do so as well:
they add noise, or begin layers and dead rows again at random. Within a pass ranks draw from different streams, as
dropout needs, so what such a line draws differs from rank to rank. Rank 0 draws what the script alone would: its
weights are the ones that count.

A rank cannot know by itself that its weights went another way, and asking after every batch would cost too much in a
healthy job. So sums of the weights are compared after batches 1, 2, 4, ... 64, then after every 64th and after the
last of a pass. Where they differ, all ranks take rank 0's, warn once, and compare after each batch from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .. import guard
from ..state import PartialState
from .averaging import share_tensors

if TYPE_CHECKING:
    from .ddp import DDPBackend

# Weights are compared again after at most so many batches.
_INTERVAL = 64
# Differences below this share of all magnitudes are rounding, as between machines that are not alike.
_ROUNDING = 1e-7
# Bytes of the sums of all ranks that are gathered; of more, only the largest and the smallest travel.
_IN_MESSAGE = 1 << 16


class EqualWeights:
    """Compares the replicas' weights, and lets all ranks take rank 0's where they differ.

    A prepared loader calls it where a loop that trains is done with a batch, on every rank.

    Args:
        engine: whose models they are.
    """

    def __init__(self, engine: DDPBackend) -> None:
        self._engine = engine
        self._batches = 0
        self._differed = False

    def __deepcopy__(self, memo: dict[int, Any]) -> EqualWeights:
        # A loader that is copied is one of the same run.
        return self

    def __call__(self, at_end: bool) -> None:
        """All ranks have trained on one batch more; `at_end`: on the last one of a pass."""
        # Of steps that average nothing, as between two averages of LocalSGD, weights differ between ranks.
        models = [m for m in self._engine.models() if m.averaged]
        if not models or self._engine.joining:
            return
        self._batches += 1
        number = self._batches
        early = number < _INTERVAL and not number & (number - 1)
        if at_end or self._differed or early or number % _INTERVAL == 0:
            self.compare([m.module for m in models], self._engine.loose.parameters)
        for model in models:
            model.averaged = False

    def compare(self, models: Iterable[torch.nn.Module], loose: Sequence[torch.Tensor] = ()) -> None:
        """Compare now; every rank has to call."""
        named = [(type(m).__name__, _floats(m.parameters())) for m in models]
        named.append(("parameters of no model", _floats(loose)))
        for name, weights in named:
            if weights and _differ(weights, name):
                with guard.collective("rank 0's weights for all", name):
                    share_tensors(weights, dist.group.WORLD)
                self._tell(name)

    def _tell(self, name: str) -> None:
        if self._differed:
            return
        self._differed = True
        if PartialState().is_main_process:
            warnings.warn(
                f"the weights of {name} differed between ranks, and all ranks took rank 0's: the script changes "
                "weights outside of the optimizer's step, such as by random numbers, which each rank draws for itself; "
                "from now on this is looked for after every batch",
                stacklevel=2,
            )


def _floats(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Weights that can be trained: integers, such as quantised ones, cannot."""
    whole = (torch.view_as_real(p.detach()) if p.is_complex() else p.detach() for p in parameters)
    return [w for w in whole if w.is_floating_point() and w.layout == torch.strided]


@torch.no_grad()
def _differ(weights: list[torch.Tensor], name: str) -> bool:
    """Whether any rank's sums are others; the answer is the same on all of them."""
    sums = torch.stack([w.sum(dtype=torch.float64) for w in weights])
    sizes = torch.stack([torch.linalg.vector_norm(w, 1, dtype=torch.float64) for w in weights])
    values = torch.cat([sums, sizes]).nan_to_num(0.0, 1e300, -1e300)
    largest, smallest = _bounds(values, f"comparison of weights of {name}")
    apart = largest - smallest
    return bool((apart > _ROUNDING * largest[len(sums) :].repeat(2)).any())


def _bounds(values: torch.Tensor, operation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Over all ranks, the largest and the smallest of each number."""
    # A few of few ranks travel in the message by which ranks agree: one exchange in place of two.
    if values.nbytes * dist.get_world_size() <= _IN_MESSAGE:
        of_all = guard.gather_within(operation, values)
        if of_all is not None:
            return of_all.amax(0), of_all.amin(0)
    bounds = torch.cat([values, -values])
    with guard.collective(operation, bounds):
        dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
    return bounds[: len(values)], -bounds[len(values) :]
