"""Parameters that a backward left out, in torch's reducer.

The reducer all-reduces its buckets in one order, each as soon as all its parameters have their gradients. A rank whose
loss leaves a parameter out never starts that bucket, and the next all-reduce it starts meets another bucket of the
ranks that did. So every rank completes its buckets before it goes on, with gradients of minus zero for what is left
out: the sequence of all-reduces is then the same on all ranks, whatever each of them leaves out.

Minus zero is the one number whose sum with any gradient is that gradient, bit for bit, plus zero included. A mean
that is minus zero in every element therefore means that no rank had a gradient, and it stays `None`, as on one process:
an optimizer then leaves the parameter alone, weight decay and momentum included. One case cannot be recognised: a
parameter that some ranks leave out, and whose gradient is minus zero in every element on all others.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

_LEFT_OUT = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d, ]+)")
# A layer that a static graph used several times counts as often.
_MOST_ROUNDS = 64


def complete_reduction(
    reducer: Any, parameters: list[torch.Tensor], edges: list[Any], keeps_zero_signs: bool = True
) -> bool:
    """Let a reducer that this backward has left incomplete all-reduce the rest of its buckets.

    Args:
        reducer: of a DistributedDataParallel, after a backward.
        parameters: those that it reduces, in its order.
        edges: of the graph, to the nodes that it waits for, in the same order. A parameter that was moved or cast since
            has another node in later graphs: its gradient is there, and only the reducer does not know.
        keeps_zero_signs: the means keep the sign of a zero; False, as with PowerSGD: what is left out on all ranks has
            a gradient of (nearly) zero in place of None.

    Returns:
        Whether there was anything to complete.

    Raises:
        RuntimeError: the reducer's error, where it does not list the missing parameters.
    """
    empty: dict[int, torch.Tensor] = {}
    completed = False
    for _ in range(_MOST_ROUNDS):
        try:
            reducer._check_reducer_finalized()
            break
        except RuntimeError as error:
            found = _LEFT_OUT.search(str(error))
            if found is None:
                raise
            completed = True
            indices = [int(i) for i in re.findall(r"\d+", found[1])]
        missing = [parameters[i] for i in indices]
        empty |= {id(p): p for p in missing if p.grad is None}
        with _without_hooks(missing):
            torch.autograd.backward(
                [edges[i] for i in indices], [torch.zeros_like(p).neg_() for p in missing]
            )
    if keeps_zero_signs and empty:
        _clear(list(empty.values()))
    return completed


@contextlib.contextmanager
def _without_hooks(parameters: list[torch.Tensor]) -> Iterator[None]:
    """Hooks of the script are for gradients of its loss."""
    tables: list[dict[Any, Any]] = [
        table
        for p in parameters
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
        if (table := getattr(p, name, None))
    ]
    contained = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, hooks in zip(tables, contained, strict=True):
            table.update(hooks)


@torch.no_grad()
def _clear(parameters: list[torch.Tensor]) -> None:
    """Take the gradients out that no rank had."""
    flags = [_is_minus_zero(p.grad) for p in parameters if p.grad is not None]
    # One answer for all: asking a device for each would wait for it as often.
    absent = torch.stack([f.to(flags[0].device) for f in flags]).tolist()
    for p, gone in zip([p for p in parameters if p.grad is not None], absent, strict=True):
        if gone:
            p.grad = None


def _is_minus_zero(gradient: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(gradient) if gradient.is_complex() else gradient
    return ((parts == 0) & torch.signbit(parts)).all()


@contextlib.contextmanager
def unsigned_zeros(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Around the backward of a rank whose share weighs nothing: its gradients are zero, and none is minus zero."""
    hooks = [p.register_hook(_absolute) for p in parameters if p.requires_grad]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _absolute(gradient: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.is_complex() else gradient.abs()
