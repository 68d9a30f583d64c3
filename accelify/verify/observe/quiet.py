"""A training step without chance: what it would draw is replaced by its mean, in original and copy alike.

So a script with dropout, batch statistics, noise or augmentation can be compared on several processes after all: the
rest of it (shares, weights of losses, reductions, schedules) has to give the same numbers.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from accelify.runtime.data import rank_numpy

_Draw = Callable[..., Any]


class Quiet:
    """Replaces the sources of chance in this process. `begin` says that training has begun."""

    def __init__(self) -> None:
        self.active = False

    def begin(self) -> None:
        """From now on draws are replaced; before, weights and data are made as ever."""
        self.active = True

    def install(self) -> None:
        """Wrap the functions that draw noise, and which rows of a batch meet; the order of the samples stays."""
        for name, mean in (("randn", 0.0), ("rand", 0.5)):
            setattr(torch, name, self._factory(getattr(torch, name), mean))
            like = f"{name}_like"
            setattr(torch, like, self._like(getattr(torch, like), mean))
        torch.randint = self._randint(torch.randint)
        torch.randperm = self._order(torch.randperm)
        torch.normal = self._normal(torch.normal)
        torch.bernoulli = self._replaced(torch.bernoulli, lambda p, *_, **__: (p >= 0.5).to(p.dtype))
        tensor: Any = torch.Tensor
        tensor.normal_ = self._in_place(tensor.normal_, lambda mean=0.0, std=1.0, **_: mean)
        tensor.uniform_ = self._in_place(tensor.uniform_, lambda low=0.0, high=1.0, **_: (low + high) / 2)
        # Gumbel noise. No weights are drawn by it.
        tensor.exponential_ = self._replaced(
            tensor.exponential_, lambda target, lambd=1.0, **_: target.fill_(1 / lambd)
        )
        # Of Python's draws the numbers alone: what is chosen by one may be chosen until it is another one.
        draws: dict[str, _Draw] = {
            "random": lambda: 0.5,
            "uniform": lambda a, b: (a + b) / 2,
            "gauss": lambda mu=0.0, sigma=1.0: mu,
            "normalvariate": lambda mu=0.0, sigma=1.0: mu,
            "betavariate": lambda alpha, beta: alpha / (alpha + beta),
        }
        for name, draw in draws.items():
            setattr(random, name, self._outside_of_samples(getattr(random, name), draw))
        if "numpy" in sys.modules:
            self._install_numpy(sys.modules["numpy"])

    def _install_numpy(self, numpy: Any) -> None:
        full = numpy.full
        draws: dict[str, _Draw] = {
            "normal": lambda loc=0.0, scale=1.0, size=None: loc if size is None else full(size, loc, float),
            "uniform": lambda low=0.0, high=1.0, size=None: (
                (low + high) / 2 if size is None else full(size, (low + high) / 2, float)
            ),
            "randn": lambda *shape: full(shape, 0.0) if shape else 0.0,
            "rand": lambda *shape: full(shape, 0.5) if shape else 0.5,
            "standard_normal": lambda size=None: 0.0 if size is None else full(size, 0.0),
            "random": lambda size=None: 0.5 if size is None else full(size, 0.5),
            "randint": lambda low, high=None, size=None, dtype=int: (
                _lowest(low, high) if size is None else full(size, _lowest(low, high), dtype)
            ),
        }
        for name, draw in draws.items():
            setattr(numpy.random, name, self._replaced(getattr(numpy.random, name), draw))
        # What a rank draws from a separate stream is drawn by the same functions then.
        rank_numpy.own = lambda: numpy.random

    def _replaced(self, function: _Draw, instead: _Draw) -> _Draw:
        @functools.wraps(function)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            return instead(*args, **kwargs) if self.active else function(*args, **kwargs)

        return quiet

    def _outside_of_samples(self, function: _Draw, instead: _Draw) -> _Draw:
        quiet = self._replaced(function, instead)
        return lambda *args, **kwargs: (function if PerSample.inside else quiet)(*args, **kwargs)

    def _factory(self, function: _Draw, mean: float) -> _Draw:
        @functools.wraps(function)
        def quiet(*size: Any, **kwargs: Any) -> Any:
            if not self.active:
                return function(*size, **kwargs)
            kwargs.pop("generator", None)
            shape = kwargs.pop("size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
            return torch.full(tuple(shape), mean, **{"dtype": torch.get_default_dtype(), **kwargs})

        return quiet

    def _like(self, function: _Draw, mean: float) -> _Draw:
        return self._replaced(function, lambda other, **kwargs: torch.full_like(other, mean, **kwargs))

    def _randint(self, function: _Draw) -> _Draw:
        @functools.wraps(function)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            # A sampler draws the order of the samples, and passes its generator on.
            if not self.active or kwargs.get("generator") is not None:
                return function(*args, **kwargs)
            bounds = [bound for bound in args if isinstance(bound, int)]
            both = len(bounds) == 2 or (bounds and "high" in kwargs)
            low = kwargs.get("low", bounds[0] if both else 0)
            retained = {k: v for k, v in kwargs.items() if k not in ("low", "high", "size", "generator")}
            return torch.full(
                tuple(kwargs.get("size", args[-1] if args else ())), low, **{"dtype": torch.int64, **retained}
            )

        return quiet

    def _order(self, function: _Draw) -> _Draw:
        @functools.wraps(function)
        def quiet(n: int, *args: Any, **kwargs: Any) -> Any:
            # A sampler passes its generator on. What is drawn for the rows of a batch goes with their number.
            if not self.active or args or kwargs.get("generator") is not None:
                return function(n, *args, **kwargs)
            wanted = {key: value for key, value in kwargs.items() if key in ("dtype", "device")}
            return torch.arange(n, **{"dtype": torch.int64, **wanted})

        return quiet

    def _normal(self, function: _Draw) -> _Draw:
        def instead(
            mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **kwargs: Any
        ) -> Any:
            if isinstance(mean, torch.Tensor):
                return mean.detach().clone()
            shape = size if size is not None else std.shape
            return torch.full(tuple(shape), float(mean), **kwargs)

        return self._replaced(function, instead)

    def _in_place(self, function: _Draw, mean: _Draw) -> _Draw:
        @functools.wraps(function)
        def quiet(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            # torch.nn.init draws weights without grad: a model made late still gets weights to learn with.
            if not self.active or not torch.is_grad_enabled():
                return function(tensor, *args, **kwargs)
            kwargs.pop("generator", None)
            renamed = {{"from": "low", "to": "high"}.get(key, key): value for key, value in kwargs.items()}
            return tensor.fill_(mean(*args, **renamed))

        return quiet


def _lowest(low: Any, high: Any) -> Any:
    return 0 if high is None else low


class PerSample:
    """`dataset` with every draw made for a sample taken from that sample's stream, whichever process asks for it."""

    inside = 0

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        numpy = sys.modules.get("numpy")
        states = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
        seed = hash(index) % 2**31 if isinstance(index, (int, str, tuple)) else 0
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        PerSample.inside += 1
        try:
            return self.dataset[index]
        finally:
            PerSample.inside -= 1
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            if numpy:
                numpy.random.set_state(states[2])
