"""Pickles and checkpoints read without running anything of theirs: classes become inert stand-ins.

Tensors are made of the storages that are beside the pickle in a file of `torch.save`, of both its formats, and arrays
of NumPy of their state. torch is not imported for it.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from accelify.verify.compare.arrays import BFLOAT16, Array, in_order, strided

_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "|i1", "ByteStorage": "|u1",
    "BoolStorage": "|b1", "ComplexFloatStorage": "<c8", "ComplexDoubleStorage": "<c16", "UntypedStorage": "|u1",
}  # fmt: skip
_LEGACY = 0x1950A86A20F9469CFC6C
_SAFE: dict[tuple[str, str], Any] = {
    **{
        ("builtins", kind.__name__): kind
        for kind in (set, frozenset, complex, bytearray, slice, range, dict, list, tuple, int, float, str, bool, bytes)
    },
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "deque"): collections.deque,
    ("_codecs", "encode"): lambda text, encoding="utf-8": _encoded(text, encoding),
}  # fmt: skip


def _encoded(text: Any, encoding: Any) -> bytes:
    return str(text).encode("latin1" if encoding == "latin1" else "utf-8")


class StandIn:
    """An object of a class that is not imported: the class's name, and whatever the pickle puts into it."""

    name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = super().__new__(cls)
        instance.arguments = [*args, *kwargs.items()]
        instance.state = None
        instance.items = []
        return instance

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Before `__new__` has run, where an older protocol goes around it.
        self.arguments: list[Any]
        self.state: Any
        self.items: list[Any]

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, value: Any) -> None:
        """As of a list."""
        self.items.append(value)

    def extend(self, values: Any) -> None:
        """As of a list."""
        self.items.extend(values)

    def add(self, value: Any) -> None:
        """As of a set."""
        self.items.append(value)

    def parts(self) -> dict[str, Any]:
        """What it holds, to be compared."""
        return {"arguments": self.arguments, "state": self.state, "items": self.items}


class _Dtype(StandIn):
    """numpy.dtype."""

    name = "numpy.dtype"

    @property
    def code(self) -> str:
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else "|"
        kind = str(self.arguments[0])
        if "O" in kind or "V" in kind:
            raise ValueError("an array of objects")
        return kind if kind[:1] in "<>|" else f"{order if order in '<>|' else '<'}{kind}"


class _NumpyArray(StandIn):
    """numpy.ndarray, which gets its content as its state."""

    name = "numpy.ndarray"

    def array(self) -> Any:
        """The array; what it was made of where it holds objects."""
        try:
            _, shape, dtype, fortran, data = self.state
            return in_order(dtype.code, tuple(shape), bytes(data), bool(fortran))
        except (TypeError, ValueError, AttributeError):
            return self.state


class _Storage:
    """Bytes of a storage and their type."""

    def __init__(self, data: Callable[[], bytes], dtype: str) -> None:
        self.data = data
        self.dtype = dtype


class _Tensor:
    """A tensor whose storage may be read later than the tensor, in torch's older format."""

    def __init__(self, storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.storage, self.offset = storage, offset
        self.shape, self.strides = tuple(shape), tuple(strides)

    def array(self) -> Array:
        storage = self.storage
        if not isinstance(storage, _Storage):
            raise ValueError("a tensor without its storage")
        return strided(storage.data(), storage.dtype, self.offset, self.shape, self.strides)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, storages: Callable[[str], bytes] | None = None) -> None:
        super().__init__(file)
        self.storages = storages
        self.kinds: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        # As protocols before the third name them.
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        if (module, name) in _SAFE:
            return _SAFE[module, name]
        if module == "copyreg" and name == "_reconstructor":
            return lambda kind, base, state: kind(*([] if state is None else [state])) if kind else None
        if module == "torch._utils":
            if name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
                return lambda storage, offset, shape, strides, *_: _Tensor(storage, offset, shape, strides)
            if name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
                return lambda tensor, *_: tensor
        if module.startswith("numpy"):
            if found := self._of_numpy(name):
                return found
        if (module, name) not in self.kinds:
            self.kinds[module, name] = type(name.replace(".", "_"), (StandIn,), {"name": f"{module}.{name}"})
        return self.kinds[module, name]

    def _of_numpy(self, name: str) -> Any:
        if name == "dtype":
            return _Dtype
        if name == "_reconstruct":
            return lambda *_: _NumpyArray()
        if name == "scalar":
            return lambda dtype, data=b"": Array(dtype.code, (), bytes(data))
        if name == "_frombuffer":
            return lambda data, dtype, shape, order: in_order(
                dtype.code, tuple(shape), bytes(data), order == "F"
            )
        return None

    def persistent_load(self, pid: Any) -> Any:
        if self.storages is None or not isinstance(pid, tuple) or not pid or pid[0] != "storage":
            return pid
        _, kind, key = pid[:3]
        read, known = self.storages, getattr(kind, "name", "").rsplit(".", 1)[-1]
        if known not in _STORAGES:
            return pid
        return _Storage(lambda: read(str(key)), _STORAGES[known])


def read_pickle(data: bytes) -> Any:
    """The content of a pickle, with stand-ins.

    Raises:
        ValueError: it is none.
    """
    stream = io.BytesIO(data)
    first = _load(_Unpickler(stream))
    if first == _LEGACY:
        return _legacy(stream)
    return plain(first)


def read_checkpoint(archive: zipfile.ZipFile) -> Any:
    """The content of a zip file of `torch.save`.

    Raises:
        ValueError: it is none.
    """
    (pickled,) = [name for name in archive.namelist() if name.rsplit("/", 1)[-1] == "data.pkl"] or [""]
    if not pickled:
        raise ValueError("not a checkpoint")
    root = pickled.removesuffix("data.pkl")
    return plain(_load(_Unpickler(archive.open(pickled), lambda key: archive.read(f"{root}data/{key}"))))


def _legacy(stream: io.BytesIO) -> Any:
    storages: dict[str, bytes] = {}
    sizes: dict[str, int] = {}

    class Unpickler(_Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            storage = super().persistent_load(pid)
            if isinstance(storage, _Storage):
                dtype = storage.dtype
                sizes[str(pid[2])] = 2 if dtype == BFLOAT16 else int(dtype.lstrip("<|")[1:])
            return storage

    # The version of the format and what the machine is like.
    for _ in range(2):
        _load(_Unpickler(stream))
    content = _load(Unpickler(stream, lambda key: storages[key]))
    for key in _load(_Unpickler(stream)):
        (count,) = struct.unpack("<q", stream.read(8))
        storages[str(key)] = stream.read(count * sizes.get(str(key), 1))
    return plain(content)


def _load(unpickler: _Unpickler) -> Any:
    try:
        return unpickler.load()
    except Exception as error:
        # A damaged or foreign stream fails in any way.
        raise ValueError(f"not a pickle: {error}") from None


def plain(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """`value` with arrays in the place of what represents one; stand-ins become mappings of what they hold."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, (_Tensor, _NumpyArray)):
        made = value.array()
        seen[id(value)] = made
        return made
    result: Any
    if isinstance(value, dict):
        result = seen[id(value)] = {}
        result.update((_key(key), plain(one, seen)) for key, one in value.items())
        return result
    if isinstance(value, (list, tuple, collections.deque)):
        result = seen[id(value)] = []
        result.extend(plain(one, seen) for one in value)
        return result
    if isinstance(value, (set, frozenset)):
        return sorted(repr(one) for one in value)
    if isinstance(value, StandIn):
        result = seen[id(value)] = {"class": value.name}
        result.update((name, plain(one, seen)) for name, one in value.parts().items() if one)
        return result
    if isinstance(value, type) and issubclass(value, StandIn):
        return value.name
    if isinstance(value, _Storage):
        return Array(value.dtype, (-1,), value.data())
    return value


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int, float, bool, type(None))) else repr(plain(key))
