"""Walks over nested containers of tensors: tuples, lists, namedtuples, mappings, dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch


def is_namedtuple(data: Any) -> bool:
    return isinstance(data, tuple) and hasattr(data, "_asdict") and hasattr(data, "_fields")


def is_tensor(data: Any) -> bool:
    return isinstance(data, torch.Tensor)


def is_array(data: Any) -> bool:
    """A NumPy array (or a single number of NumPy's), recognised without importing NumPy."""
    return type(data).__module__ == "numpy" and getattr(getattr(data, "dtype", None), "kind", "") in (
        "f",
        "i",
        "u",
        "b",
    )


def honor_type(like: Any, items: Iterable[Any]) -> Any:
    """A container of the type of `like` (tuple, list, namedtuple) holding `items`."""
    if is_namedtuple(like):
        return type(like)(*items)
    return type(like)(items)


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `func(leaf, *args, **kwargs)` on every leaf of `data` that passes `test_type`; the rest stays.

    Raises:
        TypeError: with `error_on_other_type`, for a leaf that does not pass the test.
    """

    def walk(item: Any) -> Any:
        if test_type(item):
            return func(item, *args, **kwargs)
        if isinstance(item, (tuple, list)):
            return honor_type(item, (walk(x) for x in item))
        if isinstance(item, Mapping):
            values = {k: walk(v) for k, v in item.items()}
            if type(item) is dict:
                return values
            try:
                return type(item)(values)  # type: ignore[call-arg]
            except TypeError:
                copied = item.copy()  # type: ignore[attr-defined]  # such as defaultdict, whose first argument is a factory
                copied.update(values)
                return copied
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            changes = {f.name: walk(getattr(item, f.name)) for f in dataclasses.fields(item) if f.init}
            return dataclasses.replace(item, **changes)
        if error_on_other_type:
            raise TypeError(
                f"{getattr(func, '__name__', func)} works on tensors in tuples, lists, mappings and dataclasses, "
                f"not on {type(item).__name__}"
            )
        return item

    return walk(data)


def leaves(data: Any) -> list[Any]:
    """All leaves of a nested container, in order."""
    found: list[Any] = []

    def keep(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    recursively_apply(keep, data, test_type=_is_leaf)
    return found


def _is_leaf(item: Any) -> bool:
    return not (
        isinstance(item, (tuple, list, Mapping))
        or (dataclasses.is_dataclass(item) and not isinstance(item, type))
    )


def map_leaves(func: Callable[[Any], Any], data: Any) -> Any:
    """Like `recursively_apply`, over every leaf whatever its type."""
    return recursively_apply(func, data, test_type=_is_leaf)


def _movable(item: Any) -> bool:
    """A tensor, or a batch object with a `to` method (graph batches, tokenizer output, packed sequences)."""
    return isinstance(item, torch.Tensor) or (
        hasattr(item, "to") and callable(item.to) and not isinstance(item, (type, torch.nn.Module))
    )


def _move(item: Any, device: torch.device | str, non_blocking: bool) -> Any:
    if isinstance(item, torch.Tensor):
        return item.to(device, non_blocking=non_blocking)
    try:
        return item.to(device, non_blocking=non_blocking)
    except TypeError:
        return item.to(device)


def send_to_device(
    tensor: Any,
    device: torch.device | str,
    non_blocking: bool = False,
    skip_keys: str | list[str] | None = None,
) -> Any:
    """Move every tensor in a nested container to `device`; keys of mappings named in `skip_keys` stay."""
    if skip_keys and isinstance(tensor, Mapping) and not _movable(tensor):
        skip = [skip_keys] if isinstance(skip_keys, str) else skip_keys
        moved = {
            k: v if k in skip else send_to_device(v, device, non_blocking, skip) for k, v in tensor.items()
        }
        return moved if type(tensor) is dict else type(tensor)(moved)  # type: ignore[call-arg]
    return recursively_apply(_move, tensor, device, non_blocking, test_type=_movable)


def find_batch_size(data: Any) -> int | None:
    """Length along the first dimension of the first tensor in `data`, None if there is none."""
    for leaf in leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.ndim > 0:
            return leaf.shape[0]
    return None


def slice_tensors(
    data: Any, tensor_slice: slice, process_index: int | None = None, num_processes: int | None = None
) -> Any:
    """Apply `tensor_slice` to the first dimension of every tensor in `data`."""
    return recursively_apply(lambda t: t[tensor_slice] if t.ndim else t, data)


def concatenate(data: list[Any], dim: int = 0) -> Any:
    """Join containers of the same form: their tensors are concatenated along `dim`.

    Raises:
        TypeError: for leaves that are not tensors.
    """
    first = data[0]
    if isinstance(first, (tuple, list)):
        return honor_type(first, (concatenate([d[i] for d in data], dim) for i in range(len(first))))
    if isinstance(first, Mapping):
        joined = {k: concatenate([d[k] for d in data], dim) for k in first}
        return joined if type(first) is dict else type(first)(joined)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [f.name for f in dataclasses.fields(first) if f.init]
        return dataclasses.replace(
            first, **{n: concatenate([getattr(d, n) for d in data], dim) for n in names}
        )
    if not isinstance(first, torch.Tensor):
        raise TypeError(
            f"concatenate joins tensors in tuples, lists, mappings and dataclasses, not {type(first).__name__}"
        )
    return torch.cat([d.unsqueeze(0) if d.ndim == 0 else d for d in data], dim=dim)


def _is_half(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype in (torch.float16, torch.bfloat16)


def convert_to_fp32(tensor: Any) -> Any:
    """Turn every half-precision tensor in a nested container into float32."""
    return recursively_apply(torch.Tensor.float, tensor, test_type=_is_half)


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a forward so that what it returns is float32."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return convert_to_fp32(model_forward(*args, **kwargs))

    return forward
