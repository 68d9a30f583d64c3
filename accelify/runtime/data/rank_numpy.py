"""NumPy's random numbers of one rank alone, besides those that all ranks draw alike."""

from __future__ import annotations

import zlib
from typing import Any

from ..state import PartialState

# The stream of this process, shared by its Accelerators; None as long as nobody has drawn from it.
made: Any = None


def stream() -> Any:
    """A stream that is seeded from what `numpy.random` is at, the same on every rank, and from the rank."""
    global made
    if made is None:
        import numpy as np

        state: Any = np.random.get_state(legacy=True)
        seed = (zlib.crc32(state[1].tobytes()) + PartialState().data_rank * 0x9E3779B9) % 2**32
        made = np.random.RandomState(seed)
    return made


class OwnNumpy:
    """Draws as `numpy.random` does, from a separate stream of the rank.

    `numpy.random` draws along, so that it is where it is on rank 0, and what is decided by it is decided alike.
    """

    def __getattr__(self, name: str) -> Any:
        import numpy as np

        mine, shared = getattr(stream(), name), getattr(np.random, name)
        if name.startswith("_") or name in ("shuffle", "seed", "get_state", "set_state"):
            return mine

        def draw(*args: Any, **kwargs: Any) -> Any:
            shared(*args, **kwargs)
            return mine(*args, **kwargs)

        return draw


def own() -> Any:
    """`numpy.random` itself on rank 0, which has the script's seed, and a separate stream on every other rank."""
    if PartialState().data_rank:
        return OwnNumpy()
    import numpy

    return numpy.random
