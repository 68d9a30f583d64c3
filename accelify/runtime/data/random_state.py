"""Random generators: seeding, saving, and making them agree between ranks."""

from __future__ import annotations

import random
import sys
import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..backends import xla_device
from ..state import PartialState
from . import rank_numpy

RNG_TYPES = ("torch", "cuda", "numpy", "python", "generator")


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed Python's, numpy's and torch's generators.

    Args:
        seed: the seed.
        device_specific: add the rank, so that every rank draws other numbers.
        deterministic: also ask torch for deterministic algorithms.
    """
    if device_specific:
        seed += PartialState().data_rank
    random.seed(seed)
    if "numpy" in sys.modules or _has_numpy():
        import numpy as np

        np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    xla_device.seed(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def _has_numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def own_random_state() -> dict[str, Any]:
    """The state of every generator of this process, fit for `restore_random_state` and for weights_only loading."""
    state: dict[str, Any] = {"python": _encode_python(random.getstate()), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        state["numpy"] = _encode_numpy(_numpy_state())
    if rank_numpy.made is not None:
        state["own_numpy"] = _encode_numpy(rank_numpy.made.get_state(legacy=True))
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    on_xla = xla_device.random_state()
    if on_xla is not None:
        state["xla"] = on_xla
    return state


def _numpy_state() -> Any:
    import numpy as np

    return np.random.get_state(legacy=True)


def _encode_python(state: Any) -> list[Any]:
    version, internal, gauss = state
    return [version, list(internal), gauss]


def _encode_numpy(state: Any) -> list[Any]:
    name, keys, position, has_gauss, cached = state
    return [str(name), torch.tensor(keys.tolist()), int(position), int(has_gauss), float(cached)]


def _decode_numpy(state: list[Any]) -> Any:
    name, keys, position, has_gauss, cached = state
    return name, keys.numpy().astype("uint32"), position, has_gauss, cached


def restore_random_state(state: dict[str, Any]) -> None:
    """Set every generator of this process to a state from `own_random_state`."""
    if "python" in state:
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))
    if "numpy" in state and _has_numpy():
        import numpy as np

        np.random.set_state(_decode_numpy(state["numpy"]))
    if "own_numpy" in state:
        rank_numpy.stream().set_state(_decode_numpy(state["own_numpy"]))
    if "torch" in state:
        torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        # A machine with fewer GPUs has no place for the states of the others.
        for device, saved in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(saved.cpu(), device)
    if "xla" in state:
        xla_device.set_random_state(state["xla"])


def share_random_state() -> None:
    """Give every rank the state of rank 0's generators, so that an unseeded script decides the same everywhere."""
    from ..collectives import broadcast_object

    rank_numpy.made = None
    process = PartialState()
    on_gpu = process.device.type == "cuda"
    state = own_random_state() if process.is_main_process else None
    if state is not None and on_gpu:
        # Of its GPU only: each rank draws on one, and on another than rank 0.
        state["own_gpu"] = torch.cuda.get_rng_state(process.device)
    state = broadcast_object(state)
    if not process.is_main_process:
        state.pop("cuda", None)
        state.pop("xla", None)
        restore_random_state(state)
        if on_gpu and "own_gpu" in state:
            # torch seeds a GPU's generator from the system, in every process another way.
            torch.cuda.set_rng_state(state["own_gpu"], process.device)


def synchronize_rng_state(rng_type: Any = None, generator: torch.Generator | None = None) -> None:
    """Set one generator on every rank to rank 0's state.

    Args:
        rng_type: "torch", "cuda", "numpy", "python" or "generator".
        generator: the generator meant by "generator".

    Raises:
        ValueError: for another `rng_type`, or for "generator" without one.
    """
    name = getattr(rng_type, "value", rng_type)
    if name not in RNG_TYPES:
        raise ValueError(f"rng_type must be one of {', '.join(RNG_TYPES)}, not {name!r}")
    if name == "generator" and generator is None:
        raise ValueError('rng_type="generator" needs the generator to synchronise')
    process = PartialState()
    if process.num_processes == 1:
        return
    from ..collectives import broadcast_object

    if name == "generator":
        assert generator is not None
        generator.set_state(broadcast_object(generator.get_state()))
        return
    state = own_random_state()
    if name not in state:
        return
    shared = broadcast_object({name: state[name]})
    if name == "cuda":
        torch.cuda.set_rng_state(shared["cuda"][0].cpu())
    elif not process.is_main_process:
        restore_random_state(shared)


def synchronize_rng_states(rng_types: Iterable[Any], generator: torch.Generator | None = None) -> None:
    """`synchronize_rng_state` for each of `rng_types`."""
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator)


def share_order(generators: list[torch.Generator]) -> int:
    """Before a shuffled pass: every rank takes rank 0's CPU state and the states of the loader's generators.

    Returns a number that is the same on every rank and differs from pass to pass.
    """
    from ..collectives import broadcast_tensors

    states = [torch.get_rng_state(), *(g.get_state() for g in generators)]
    broadcast_tensors(states)
    if not PartialState().is_main_process:
        torch.set_rng_state(states[0])
        for generator, state in zip(generators, states[1:], strict=True):
            generator.set_state(state)
    return zlib.crc32(states[0].numpy().tobytes())


def stream_number() -> int:
    """A number that hangs on what this rank's streams of torch draw next."""
    return zlib.crc32(b"".join(state.numpy().tobytes() for state in _streams()))


# Passes that separated the ranks' streams and have not been read to their end, by number.
_apart: set[int] = set()
# Those of them that have yielded their last batch.
_spent: set[int] = set()
_next_number = 0


def open_pass(before: int | None) -> int:
    """Note that a pass begins in which ranks draw separately, in the place of one that was left; returns its number."""
    global _next_number
    if before is not None:
        _apart.discard(before)
        _spent.discard(before)
    number, _next_number = _next_number, _next_number + 1
    _apart.add(number)
    return number


def next_pass() -> int:
    """The number that the next such pass will get."""
    return _next_number


def note_last(number: int) -> None:
    """Note that a pass has yielded its last batch: nobody may ask it for another one."""
    if number in _apart:
        _spent.add(number)


def rejoin(number: int) -> None:
    """After the last batch of a pass: every rank goes on with rank 0's streams, so that a script which draws there
    (a split of the data for the next round, new weights for the next fold) draws the same everywhere.

    Inside another such pass the streams stay apart. Every rank decides the same: it counts which passes began and
    which were read to their end, not which iterators still exist. One that began within this one and has yielded its
    last batch is over with it: `zip(first, second)` ends with the first of two that are as long.
    """
    _apart.discard(number)
    _spent.discard(number)
    if all(other > number and other in _spent for other in _apart):
        _join_streams()


def rejoin_within(number: int) -> None:
    """The same after a pass that separated nothing, for those from a number on which began within it."""
    if _apart and all(other >= number and other in _spent for other in _apart):
        _join_streams()


def _join_streams() -> None:
    from ..collectives import broadcast_tensors

    if threading.current_thread() is not threading.main_thread():
        return
    _apart.clear()
    _spent.clear()
    device = PartialState().device
    states = [torch.get_rng_state(), _packed_numpy()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    broadcast_tensors(states)
    if not PartialState().is_main_process:
        torch.set_rng_state(states[0])
        _unpack_numpy(states[1])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states[2], device)


def _packed_numpy() -> torch.Tensor:
    """NumPy's state as one tensor; an empty one without NumPy. Its keys have 32 bits, which a double holds exactly."""
    if not _has_numpy():
        return torch.empty(0, dtype=torch.float64)
    _, keys, position, has_gauss, cached = _numpy_state()
    return torch.tensor([*keys.tolist(), position, has_gauss, cached], dtype=torch.float64)


def _unpack_numpy(packed: torch.Tensor) -> None:
    if packed.numel():
        *keys, position, has_gauss, cached = packed.tolist()
        encoded = ["MT19937", torch.tensor([int(key) for key in keys]), int(position), int(has_gauss), cached]
        restore_random_state({"numpy": encoded})


def random_snapshot(generators: list[torch.Generator]) -> tuple[Any, ...]:
    """What an order can depend on, taken quickly at the beginning of each pass."""
    numpy_state = _numpy_state() if "numpy" in sys.modules else None
    return torch.get_rng_state(), random.getstate(), numpy_state, [g.get_state() for g in generators]


def encode_snapshot(snapshot: tuple[Any, ...]) -> dict[str, Any]:
    """The same as `own_random_state` returns, with the generators' states."""
    torch_state, python_state, numpy_state, generators = snapshot
    state = {"torch": torch_state, "python": _encode_python(python_state), "generators": generators}
    if numpy_state is not None:
        state["numpy"] = _encode_numpy(numpy_state)
    return state


class Resume:
    """How a pass goes on in a new process: back to its beginning to draw the order again, then on with the states
    of the time of saving.

    Args:
        generators: those of the loader.
        state: of a loader's `position_state`.
        random: states of the process to go on with; None: those that it has when the pass begins.
    """

    def __init__(
        self, generators: list[torch.Generator], state: dict[str, Any], random: dict[str, Any] | None
    ) -> None:
        self.position: int = state["position"]
        # Whether the ranks' streams were separate; files of earlier releases do not record it.
        self.parted: bool = state.get("parted", False)
        self._generators = generators
        self._beginning = state["beginning"]
        self._random = random
        self._saved = state["generators"]

    def go_back(self) -> None:
        """To the random states of the beginning of the pass."""
        if self._random is None:
            self._random = own_random_state()
        restore_random_state(self._beginning)
        self._set(self._beginning["generators"])

    def go_on(self) -> None:
        """With the random states of the time of saving."""
        assert self._random is not None
        restore_random_state(self._random)
        self._set(self._saved)

    def _set(self, states: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


class DataStream:
    """The random stream of a dataset that draws while it is read, the same on every rank.

    Between two reads the process goes on with its normal stream. As long as nothing else draws from that, the two are
    one, as they are in the original script.
    """

    def __init__(self) -> None:
        self.number: int | None = share_order([])
        self.state = torch.get_rng_state()
        self._apart = PartialState().data_rank > 0

    def read(self, fetch: Callable[[], Any]) -> Any:
        """Call `fetch` on this stream."""
        own = torch.get_rng_state()
        together = not self._apart and torch.equal(own, self.state)
        torch.set_rng_state(self.state)
        try:
            return fetch()
        finally:
            self.state = torch.get_rng_state()
            if self._apart and self.number is not None:
                move_apart(self.number)
                self.number = None
            elif not together:
                torch.set_rng_state(own)


def move_apart(number: int) -> Callable[[], None] | None:
    """Give ranks above 0 different streams, so that noise and dropout differ; rank 0 keeps the script's.

    Returns the way back for a pass that is left: as long as nothing was drawn, the stream that all ranks had is still
    known, and takes no asking around.
    """
    rank = PartialState().data_rank
    if not rank:
        return None
    shared = _streams()
    # Far apart in the low 32 bits, which are all that torch's generator on the CPU looks at.
    torch.manual_seed((number + rank * 0x9E3779B97F4A7C15) % 2**63)
    own = _streams()

    def come_back() -> None:
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and all(map(torch.equal, _streams(), own)):
            torch.set_rng_state(shared[0])
            if len(shared) > 1:
                torch.cuda.set_rng_state(shared[1], PartialState().device)

    return come_back


def _streams() -> list[torch.Tensor]:
    """The states of torch's generators that this rank draws from."""
    device = PartialState().device
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]
