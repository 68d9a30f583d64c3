"""Averages over ranks outside of torch's reducer: gradients by flat all-reduces, buffers by broadcasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .. import guard

# Elements in one flat all-reduce: 100 MB of float32.
_FLAT_SIZE = 25_000_000


def mark_of(parameter: torch.Tensor) -> tuple[int, int] | None:
    """Changes whenever a backward adds to the parameter's gradient."""
    grad = parameter.grad
    if grad is None:
        return None
    # A sparse gradient has no storage; one that is added to gets new values.
    contained = grad._values() if grad.is_sparse else grad
    return contained.data_ptr(), grad._version


class ParameterSet:
    """Parameters whose gradients are averaged together by flat all-reduces.

    Args:
        parameters: the parameters, in the same order on every rank.
        stated: what an error calls them.
        sparse: those of them whose gradients are sparse tensors where there are any.
    """

    def __init__(
        self, parameters: Iterable[torch.Tensor], stated: str, sparse: Iterable[torch.Tensor] = ()
    ) -> None:
        self.parameters: list[torch.Tensor] = list(parameters)
        self.stated = stated
        self._sparse = {id(p) for p in sparse}

    def add(self, parameters: Iterable[torch.Tensor]) -> None:
        """Take in those that are not there yet: an optimizer that is made again brings the same ones again."""
        known = {id(p) for p in self.parameters}
        self.parameters += [p for p in parameters if id(p) not in known]

    def snapshot(self) -> list[tuple[int, int] | None]:
        """Marks of all gradients, which change with every backward that adds to them."""
        return [mark_of(p) for p in self.parameters]

    def average(self) -> None:
        """Replace every gradient by its mean over ranks; one that only some ranks have counts as zero elsewhere."""
        with guard.collective(guard.AVERAGE, self.stated), torch.no_grad():
            for group in self._groups():
                _average(group)

    def _groups(self) -> Iterator[list[torch.Tensor]]:
        by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for p in self.parameters:
            if id(p) in self._sparse if p.grad is None else p.grad.is_sparse:
                _average_sparse(p)
            else:
                by_kind.setdefault((p.dtype, p.device), []).append(p)
        for parameters in by_kind.values():
            group: list[torch.Tensor] = []
            size = 0
            for p in parameters:
                if group and size + p.numel() > _FLAT_SIZE:
                    yield group
                    group, size = [], 0
                group.append(p)
                size += p.numel()
            yield group


def _average_sparse(parameter: torch.Tensor) -> None:
    grad = parameter.grad
    if grad is None:
        kind: dict[str, Any] = {"dtype": parameter.dtype, "device": parameter.device}
        nowhere = torch.empty(1, 0, dtype=torch.int64, device=parameter.device)
        rows = torch.empty(0, *parameter.shape[1:], **kind)
        grad = torch.sparse_coo_tensor(nowhere, rows, tuple(parameter.shape), check_invariants=True)
    dist.all_reduce(grad)
    if parameter.grad is not None or grad._nnz():
        parameter.grad = grad.div_(dist.get_world_size())


def sparse_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """The weights of layers that were made with `sparse=True`, which alone get sparse gradients."""
    layers = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return [m.weight for m in module.modules() if isinstance(m, layers) and m.sparse]


def _average(parameters: list[torch.Tensor]) -> None:
    first = parameters[0]
    present = torch.tensor([p.grad is not None for p in parameters], dtype=first.dtype, device=first.device)
    parts = [
        torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.detach().reshape(-1) for p in parameters
    ]
    flat = torch.cat([*parts, present])
    flat[: -len(parameters)].div_(dist.get_world_size())
    dist.all_reduce(flat)
    anywhere = flat[-len(parameters) :].tolist()
    offset = 0
    for p, count in zip(parameters, anywhere, strict=True):
        mean = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
        if p.grad is not None:
            p.grad.detach().copy_(mean)
        elif count:
            p.grad = mean.clone()


def share_tensors(own: list[torch.Tensor], group: Any, bucket_size: int = 250 * 1024 * 1024) -> None:
    """Overwrite tensors with those of the group's first rank, many in one broadcast."""
    # One with an odd layout (transposed, say) cannot be flattened in place: it is copied.
    tensors = [b if _is_packed(b) else b.clone(memory_format=torch.contiguous_format) for b in own]
    dist._broadcast_coalesced(group, tensors, bucket_size, 0)  # type: ignore[attr-defined]
    for tensor, copy in zip(own, tensors, strict=True):
        if tensor is not copy:
            tensor.copy_(copy)


def _is_packed(tensor: torch.Tensor) -> bool:
    """Whether a tensor's strides are the plain ones; `is_contiguous` overlooks those of dimensions of size one."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected:
            return False
        expected *= size
    return True
