"""Reentrant checkpoints: parts of a model that a backward computes, and walks back through, within itself.

torch's reducer counts on one gradient for each parameter in a backward. A part that is used several times, each time
within a separate checkpoint with `use_reentrant=True`, adds to its gradients once for each: whatever comes after the
reducer has averaged them stays on its rank, without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

# The name that torch's node has in the graph, and those of libraries that began with it.
_NODE = "CheckpointFunctionBackward"


def is_reentrant(loss: torch.Tensor) -> bool:
    """Whether the graph of a loss has such a checkpoint in it, outside of others."""
    ahead: list[Any] = [loss.grad_fn]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        if node is None:
            continue
        if node.name() == _NODE:
            return True
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                ahead.append(following)
    return False


class Additions:
    """Counts how often a backward adds to each parameter's gradient.

    Args:
        parameters: those that are counted.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._counts: dict[int, int] = {}
        # Not by the parameter itself, which would hold it and be copied with it.
        for parameter in parameters:
            hook = functools.partial(_count, self._counts)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """A backward begins."""
        self._counts.clear()

    @property
    def came_again(self) -> bool:
        """Whether it has added to one several times."""
        return any(count > 1 for count in self._counts.values())


def _count(counts: dict[int, int], parameter: torch.Tensor) -> None:
    counts[id(parameter)] = counts.get(id(parameter), 0) + 1
