"""Tensors and arrays as they are in files: a type, a shape and bytes; read and compared without torch."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

from accelify.verify.compare.numbers import CONTROL, CONTROL_LIMIT, Match

BFLOAT16 = "bf2"
"""Stands for a type that NumPy does not have."""


@dataclass(frozen=True)
class Array:
    """`dtype` as NumPy writes it ("<f4"), `data` the elements one after another in the order of the last index."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def kind(self) -> str:
        """ "f" for floating point, "i" for what is compared exactly, "c" for complex."""
        letter = self.dtype.lstrip("<>=|")[:1]
        return letter if letter in "fc" else "f" if letter == "b" and self.dtype == BFLOAT16 else "i"

    def values(self) -> Any:
        """As a NumPy array; None where NumPy is missing or does not know the type."""
        try:
            import numpy
        except ImportError:
            return None
        try:
            if self.dtype == BFLOAT16:
                halves = numpy.frombuffer(self.data, "<u2").astype("<u4") << 16
                return halves.view("<f4").reshape(self.shape)
            return numpy.frombuffer(self.data, self.dtype).reshape(self.shape)
        except (TypeError, ValueError):
            return None

    def one(self) -> float | None:
        """Its only element; None where it has several."""
        if math.prod(self.shape) != 1:
            return None
        values = self.values()
        return None if values is None or self.kind == "c" else float(values.reshape(-1)[0])


@dataclass(frozen=True)
class ArrayDifference:
    """What holding one array against another came to; `a` and `b` are the elements that are furthest apart."""

    match: Match
    sentence: str = ""
    a: float | None = None
    b: float | None = None


def compare_arrays(
    a: Array, b: Array, tolerance: float, exact: bool, disturbed: Array | None = None
) -> ArrayDifference:
    """Compare one array with another.

    Floating point may differ by `tolerance` of the element and of the largest element of the array, whose rounding the
    small ones carry. Everything else is exact.

    Args:
        a: the original's.
        b: the other one.
        tolerance: relative difference that rounding explains.
        exact: nothing is put down to rounding.
        disturbed: the array in a run of the original whose gradients were disturbed as by rounding. What Adam makes of
            a gradient that is nothing but rounding, as that of the bias of attention's keys, goes as far apart there.
    """
    if a.shape != b.shape:
        return ArrayDifference(
            Match.DIFFERENT, f"has shape {list(b.shape)} where the original has {list(a.shape)}"
        )
    if a.dtype != b.dtype:
        return ArrayDifference(Match.DIFFERENT, f"is of type {b.dtype} where the original is of {a.dtype}")
    if a.data == b.data:
        return ArrayDifference(Match.SAME)
    x, y = a.values(), b.values()
    if x is None or y is None or x.dtype.kind not in "fciub":
        return ArrayDifference(Match.DIFFERENT, "has other bytes")
    import numpy

    wide: Any = "c16" if a.kind == "c" else "f8"
    x, y = x.reshape(-1).astype(wide), y.reshape(-1).astype(wide)
    with numpy.errstate(all="ignore"):
        apart = numpy.abs(x - y)
        # Infinite ones that are equal, and NaN in both.
        apart[(x == y) | (numpy.isnan(x) & numpy.isnan(y))] = 0.0
        apart[numpy.isnan(apart)] = math.inf
        finite = numpy.abs(x[numpy.isfinite(x)])
        largest = float(finite.max()) if finite.size else 0.0
        allowed = tolerance * numpy.maximum(numpy.abs(x), largest) if a.kind in "fc" and not exact else 0.0
        if a.kind in "fc" and not exact and disturbed is not None and disturbed.shape == a.shape:
            z = disturbed.values()
            moved = 0.0 if z is None else float(numpy.abs(x - z.reshape(-1).astype(wide)).max(initial=0.0))
            allowed = numpy.maximum(allowed, min(CONTROL * moved, CONTROL_LIMIT * largest))
        beyond = apart > allowed
    if not beyond.any():
        return ArrayDifference(Match.ROUNDING if apart.any() else Match.SAME)
    worst = int(apart.argmax())
    first, second = complex(x[worst]), complex(y[worst])
    many = f"{int(beyond.sum())} of {beyond.size} elements differ, one is " if beyond.size > 1 else "is "
    sentence = f"{many}{_shown(second)} where the original has {_shown(first)}"
    return ArrayDifference(Match.DIFFERENT, sentence, first.real, second.real)


def _shown(value: complex) -> str:
    return f"{value:.6g}" if value.imag else f"{value.real:.6g}"


def strided(data: bytes, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The array that a tensor's storage, offset and strides represent.

    Raises:
        ValueError: the storage is too short, or the strides are not those of a plain array and NumPy is missing.
    """
    size = 2 if dtype == BFLOAT16 else int(dtype.lstrip("<>|")[1:])
    count = math.prod(shape)
    plain = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    if count == 0:
        return Array(dtype, shape, b"")
    if all(
        length == 1 or stride == usual for length, stride, usual in zip(shape, strides, plain, strict=True)
    ):
        start = offset * size
        if start + count * size > len(data):
            raise ValueError("the storage is shorter than its tensor")
        return Array(dtype, shape, data[start : start + count * size])
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if min(strides) < 0 or (last + 1) * size > len(data):
        raise ValueError("the storage is shorter than its tensor")
    try:
        import numpy
    except ImportError:
        raise ValueError("NumPy is missing") from None
    elements = numpy.frombuffer(data, f"<u{size}" if size in (1, 2, 4, 8) else f"V{size}")[offset:]
    view = numpy.lib.stride_tricks.as_strided(elements, shape, [stride * size for stride in strides])
    return Array(dtype, shape, view.tobytes())


def numpy_array(data: bytes) -> Array:
    """The content of an .npy file.

    Raises:
        ValueError: it is none, or holds objects.
    """
    import ast

    if data[:6] != b"\x93NUMPY":
        raise ValueError("not an array")
    length, start = (
        (struct.unpack("<H", data[8:10])[0], 10) if data[6] == 1 else (struct.unpack("<I", data[8:12])[0], 12)
    )
    header = ast.literal_eval(data[start : start + length].decode("latin1"))
    dtype, shape = header["descr"], tuple(header["shape"])
    if not isinstance(dtype, str) or "O" in dtype:
        raise ValueError("an array of objects")
    return in_order(dtype, shape, data[start + length :], header["fortran_order"])


def in_order(dtype: str, shape: tuple[int, ...], data: bytes, fortran: bool) -> Array:
    """An array whose elements are in the order of the first index where `fortran`."""
    if fortran and len(shape) > 1:
        values = Array(dtype, shape[::-1], data).values()
        if values is None:
            raise ValueError("NumPy is missing")
        data = values.T.tobytes()
    return Array(dtype, shape, data)
