"""Batches that one rank sends to others: their tensors in one message, and a note of what they were in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .. import guard
from ..nested import recursively_apply
from ..state import PartialState

# Every tensor begins where any type may begin.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor is in the message."""

    start: int
    length: int
    dtype: torch.dtype
    shape: torch.Size


class _IsPlace:
    """Which leaves of a note are placeholders for tensors, whatever else it contains."""

    def __call__(self, leaf: Any) -> bool:
        return isinstance(leaf, _Place)


def _is_plain(leaf: Any) -> bool:
    return type(leaf) is torch.Tensor and leaf.layout == torch.strided and not leaf.is_quantized


def packed(batch: Any) -> tuple[Any, torch.Tensor]:
    """What a batch is without its tensors, and their bytes, one after another.

    Tensors of other kinds (sparse ones, subclasses) stay in the note, which is pickled.
    """
    parts: list[torch.Tensor] = []
    size = 0

    def keep(tensor: torch.Tensor) -> _Place:
        nonlocal size
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
        place = _Place(size, len(content), tensor.dtype, tensor.shape)
        gap = -len(content) % _ALIGNMENT
        parts.extend([content.cpu(), torch.zeros(gap, dtype=torch.uint8)])
        size += len(content) + gap
        return place

    note = recursively_apply(keep, batch, test_type=_is_plain)
    return note, torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unpacked(note: Any, content: torch.Tensor) -> Any:
    """The batch that `packed` got; its tensors are views of `content`."""

    def made(place: _Place) -> torch.Tensor:
        part = content[place.start : place.start + place.length]
        if not place.length:
            return torch.empty(place.shape, dtype=place.dtype)
        return part.view(place.dtype).view(place.shape)

    return recursively_apply(made, note, test_type=_IsPlace())


def scatter(parts: list[Any] | None) -> Any:
    """Rank r's entry of the main process's list; every rank has to ask.

    Args:
        parts: on the main process one for each rank; None elsewhere.
    """
    process = PartialState()
    parcels = None if parts is None else [packed(part) for part in parts[1:]]
    notes = None
    if parcels is not None:
        notes = [(None, 0), *((note, content.numel()) for note, content in parcels)]
    box: list[Any] = [None]
    with guard.collective("scatter of a batch"):
        dist.scatter_object_list(box, notes, src=0)
        if parts is not None and parcels is not None:
            sent = [content.to(process.group_device) for _, content in parcels]
            works = [dist.isend(content, rank + 1) for rank, content in enumerate(sent) if content.numel()]
            for work in works:
                if work is not None:
                    work.wait()
            return parts[0]
        note, size = box[0]
        content = torch.empty(size, dtype=torch.uint8, device=process.group_device)
        if size:
            dist.recv(content, 0)
    return unpacked(note, content.cpu())
