"""Talk between ranks, over nested containers: gather, reduce, broadcast, pad.

With one process every function returns its argument. The order of calls must be the same on every rank.
What is gathered or reduced counts once for each batch: of ranks that work on the same batch (tensor parallel), one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import guard
from .nested import is_array, leaves, map_leaves, recursively_apply
from .state import PartialState

# Its name from torch 2.13 on, where the older one warns in each process.
_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"


def _alone() -> bool:
    return PartialState.here().num_processes == 1


def _no_other_batches() -> bool:
    return PartialState.here().data_ranks == 1


def _to_group(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where the process group can reach it, contiguous, detached, and whole if it is a DTensor."""
    process = PartialState.here()
    if type(tensor) is not torch.Tensor and hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    if process.device.type != "cpu" and tensor.device != process.group_device:
        tensor = tensor.to(process.group_device)
    return tensor.detach().contiguous()


def barrier() -> None:
    """Return when every rank has come here."""
    if not _alone():
        # Ranks that agree have all come.
        guard.enter("wait_for_everyone")
        if not guard.is_on():
            dist.barrier()


def _all_gather(tensor: torch.Tensor, operation: str = "gather") -> torch.Tensor:
    """Every rank's tensor, in a first dimension of all ranks; shapes must agree."""
    mine = _to_group(tensor)
    process = PartialState.here()
    # On a device, asking for the tensor's bytes would wait for it.
    within = process.data_ranks == process.num_processes and process.device.type == "cpu"
    if within:
        whole = guard.gather_within(operation, mine)
        if whole is not None:
            return whole
    whole = mine.new_empty(process.data_ranks * mine.numel())
    with guard.collective(operation, tensor, gathered=mine.nbytes if within else 0):
        # Backends differ in what they make of nothing.
        if mine.numel():
            getattr(dist, _GATHER)(whole, mine.view(-1), group=process.data_group)
    return whole.view(process.data_ranks, *mine.shape).to(tensor.device)


def gather(tensor: Any) -> Any:
    """Every rank's tensors put together along the first dimension, on every rank.

    Args:
        tensor: a tensor, or a nested container of them; numbers without dimension become vectors. Shapes must be
            the same on every rank (`pad_across_processes` makes them so).
    """
    if _no_other_batches():
        return tensor

    if type(tensor) is torch.Tensor:
        return _gathered(tensor)
    return recursively_apply(_gathered, tensor, error_on_other_type=True)


def _gathered(tensor: torch.Tensor) -> torch.Tensor:
    return _all_gather(tensor.unsqueeze(0) if tensor.ndim == 0 else tensor).flatten(0, 1)


_gathered.__name__ = "gather"


def gather_sized(tensor: Any, sizes: Sequence[int], whole: bool = False) -> Any:
    """Gather where rank r has `sizes[r]` real samples; a rank with none has one sample that is left out.

    Tensors whose first dimension is no multiple of `sizes`, the same on every rank, are gathered as they are. With
    `whole`, a rank with none has a whole batch again: all that is computed from it is left out, whatever its size. A
    rank with one sample whose dimension is gone, unlike the others' (`labels.squeeze()`), has it put back; of single
    numbers those of the ranks with none are left out where none has more than one sample.
    """
    if _no_other_batches():
        return tensor
    contained = [max(n, 1) for n in sizes]

    def one(t: torch.Tensor) -> torch.Tensor:
        shape = torch.tensor([t.ndim, t.shape[0] if t.ndim else 1])
        shapes = [(int(s[0]), int(s[1])) for s in _all_gather(shape, "gather of sizes")]
        most = max(ndim for ndim, _ in shapes)
        if most == 0:
            parts = list(_all_gather(t.unsqueeze(0)))
            # Where no rank has more than one sample, a number is computed from it, or is the sample's, squeezed.
            own = whole or max(contained) == 1
            return torch.cat([p for p, n in zip(parts, sizes, strict=True) if n or not own])
        squeezed = [n == 1 and ndim == most - 1 for n, (ndim, _) in zip(contained, shapes, strict=True)]
        if squeezed[PartialState.here().data_rank]:
            t = t.unsqueeze(0)
        lengths = [1 if gone else length for gone, (_, length) in zip(squeezed, shapes, strict=True)]
        parts = _all_gather_uneven(t, lengths)
        # As many rows for each sample on every rank: one, or one for each of its tokens.
        if whole or len({length / n for length, n in zip(lengths, contained, strict=True)}) == 1:
            parts = [p for p, n in zip(parts, sizes, strict=True) if n]
        return torch.cat(parts)

    one.__name__ = "gather_for_metrics"
    return recursively_apply(one, tensor, error_on_other_type=True)


def _all_gather_uneven(tensor: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
    longest = max(lengths)
    if tensor.shape[0] < longest:
        missing = tensor.new_zeros((longest - tensor.shape[0], *tensor.shape[1:]))
        tensor = torch.cat([tensor.detach(), missing])
    return [p[:n] for p, n in zip(_all_gather(tensor), lengths, strict=True)]


def all_gather_objects(item: Any) -> list[Any]:
    """Every rank's object, in order of rank."""
    if _alone():
        return [item]
    found: list[Any] = [None] * PartialState.here().num_processes
    with guard.collective("gather of objects"):
        dist.all_gather_object(found, item)
    return found


def gather_objects_on_main(item: Any) -> list[Any] | None:
    """Every rank's object, in order of rank, on the main process; None elsewhere."""
    if _alone():
        return [item]
    process = PartialState.here()
    found: list[Any] | None = [None] * process.num_processes if process.is_main_process else None
    with guard.collective("gather of objects"):
        dist.gather_object(item, found, dst=0)
    return found


def gather_object(object: Any) -> Any:
    """Every rank's list put together, on every rank; with one process, the list as it is.

    Args:
        object: a list of anything that pickle takes.
    """
    if _no_other_batches():
        return object
    step = PartialState.here().ranks_per_batch
    return [item for part in all_gather_objects(object)[::step] for item in part]


def broadcast_object(item: Any, from_process: int = 0) -> Any:
    """One rank's object, on every rank."""
    if _alone():
        return item
    box = [item]
    process = PartialState.here()
    device = process.device if process.device.type == "cuda" else None
    with guard.collective(f"broadcast of objects from rank {from_process}"):
        dist.broadcast_object_list(box, src=from_process, device=device)
    return box[0]


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Fill `object_list` in place with the objects in the list of `from_process`; returns it."""
    if not _alone():
        object_list[:] = broadcast_object(list(object_list), from_process)
    return object_list


def broadcast_tensors(tensors: Sequence[torch.Tensor], from_process: int = 0) -> None:
    """Overwrite tensors of equal shape on every rank with those of `from_process`."""
    if _alone():
        return
    with guard.collective("broadcast", *tensors, f"from rank {from_process}"), torch.no_grad():
        for tensor in tensors:
            shared = _to_group(tensor)
            dist.broadcast(shared, src=from_process)
            if shared.device != tensor.device or shared.data_ptr() != tensor.data_ptr():
                tensor.copy_(shared)


def broadcast(tensor: Any, from_process: int = 0) -> Any:
    """Overwrite every tensor of a nested container, in place, with that of `from_process`; returns the container."""
    if not _alone():
        found: list[torch.Tensor] = []
        recursively_apply(lambda t: found.append(t.data) or t, tensor, error_on_other_type=True)  # type: ignore[func-returns-value]
        broadcast_tensors(found, from_process)
    return tensor


def copy_tensor_to_devices(tensor: torch.Tensor | None = None) -> torch.Tensor:
    """The main process's tensor, on every rank and its device; the others need not know its shape.

    Args:
        tensor: on the main process.
    """
    process = PartialState.here()
    given = tensor.detach().cpu() if process.is_main_process and tensor is not None else None
    found: torch.Tensor = broadcast_object(given)
    return found.to(process.device)


_OPERATIONS: dict[str, Any] = {"sum": "SUM", "mean": "SUM", "max": "MAX", "min": "MIN", "none": None}


def on_any_rank(flag: bool) -> bool:
    """Whether `flag` holds on at least one rank."""
    if _alone():
        return bool(flag)
    shared = torch.tensor(int(flag), device=PartialState.here().device)
    with guard.collective("question to all ranks"):
        dist.all_reduce(shared, dist.ReduceOp.MAX)
    return bool(shared.item())


def reduce(tensor: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
    """Combine every rank's tensors and numbers, element by element, on every rank.

    Args:
        tensor: a tensor or a number (Python's or NumPy's), or a nested container of them. Numbers come back as
            Python's; the mean of one that all ranks have is that number, a whole one too. Arrays of NumPy come
            back as arrays.
        reduction: "mean", "sum", "max", "min", or "none" (leave them as they are).
        scale: factor on the result of tensors and numbers alike.

    Raises:
        ValueError: for another reduction.
        TypeError: for a leaf that is neither.
    """
    if reduction not in _OPERATIONS:
        raise ValueError(f"reduction must be one of {', '.join(_OPERATIONS)}, not {reduction!r}")
    if _no_other_batches() or reduction == "none":
        return tensor if scale == 1.0 else map_leaves(lambda x: x * scale, tensor)
    numbers = [x.item() if is_array(x) else x for x in leaves(tensor) if _is_number(x)]
    results = iter(_reduce_numbers(numbers, reduction))

    def one(leaf: Any) -> Any:
        if _is_number(leaf):
            value = next(results)
            return value if scale == 1.0 else value * scale
        if is_array(leaf):
            return _reduce_tensor(torch.from_numpy(leaf), reduction, scale).numpy()
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"reduce works on tensors and numbers in containers, not on {type(leaf).__name__}"
            )
        return _reduce_tensor(leaf, reduction, scale)

    return map_leaves(one, tensor)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float)) or (is_array(leaf) and leaf.ndim == 0)


def _reduce_tensor(tensor: torch.Tensor, reduction: str, scale: float) -> torch.Tensor:
    shared = _to_group(tensor).clone()
    if shared.dtype == torch.bool:
        shared = shared.long()
    with guard.collective(f"reduce ({reduction})", tensor):
        dist.all_reduce(
            shared, getattr(dist.ReduceOp, _OPERATIONS[reduction]), group=PartialState.here().data_group
        )
    shared = shared.to(tensor.device)
    if reduction == "mean":
        shared = shared / PartialState.here().data_ranks
    return shared if scale == 1.0 else shared * scale


def _reduce_numbers(numbers: list[Any], reduction: str) -> list[Any]:
    """All numbers of one call in one exchange, whole numbers as such: 2**60 + 1 stays what it is."""
    if not numbers:
        return []
    floats = torch.tensor([float(x) if isinstance(x, float) else 0.0 for x in numbers], dtype=torch.float64)
    whole = torch.tensor([0 if isinstance(x, float) else _checked(x) for x in numbers])
    kinds = torch.tensor([isinstance(x, float) for x in numbers]).long()
    parts = _all_gather(
        torch.stack([floats.view(torch.int64), whole, kinds]), f"reduce ({reduction}) of numbers"
    )
    rows = []
    for part in parts:
        values = zip(part[0].view(torch.float64).tolist(), part[1].tolist(), part[2].tolist(), strict=True)
        rows.append([x if kind else n for x, n, kind in values])
    combine: Callable[[Sequence[Any]], Any] = {"max": max, "min": min}.get(reduction, sum)
    columns = list(zip(*rows, strict=True))
    return [_mean(column) if reduction == "mean" else combine(column) for column in columns]


def _mean(numbers: Sequence[Any]) -> Any:
    """The mean of every rank's number; one that all have stays what it is, such as the number of a step."""
    first = numbers[0]
    alike = all(one == first and type(one) is type(first) for one in numbers)
    return first if alike else sum(numbers) / len(numbers)


def _checked(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"reduce takes whole numbers of at most 64 bits, not {number}")
    return number


def pad_across_processes(tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False) -> Any:
    """Pad tensors to the largest size along `dim` over all ranks, so that they can be gathered.

    Args:
        tensor: a tensor or a nested container of them.
        dim: dimension to pad; tensors without it stay.
        pad_index: value to pad with.
        pad_first: pad at the beginning.

    Raises:
        RanksDisagreeError: the ranks' tensors have different numbers of dimensions.
    """
    if _no_other_batches():
        return tensor

    def one(t: torch.Tensor) -> torch.Tensor:
        has_it = -t.ndim <= dim < t.ndim
        own = torch.tensor([t.ndim, t.shape[dim] if has_it else 0])
        found = [(int(n), int(size)) for n, size in _all_gather(own, "pad_across_processes")]
        if len({n for n, _ in found}) > 1:
            stated = ", ".join(f"rank {rank}: {n}" for rank, (n, _) in enumerate(found))
            raise guard.RanksDisagreeError(
                f"pad_across_processes: the ranks' tensors have different numbers of dimensions ({stated})"
            )
        if not has_it:
            return t
        longest = max(size for _, size in found)
        if longest == t.shape[dim]:
            return t
        shape = list(t.shape)
        shape[dim] = longest - t.shape[dim]
        padding = t.new_full(shape, pad_index)
        return torch.cat([padding, t] if pad_first else [t, padding], dim=dim)

    one.__name__ = "pad_across_processes"
    return recursively_apply(one, tensor, error_on_other_type=True)
