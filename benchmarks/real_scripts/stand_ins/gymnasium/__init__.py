"""A small stand-in for Gymnasium: a pole on a cart and a pendulum, with the names and answers of its environments.

There, an environment that nobody seeds takes its seed from the system, and no two runs can be compared. Here it takes
torch's, each environment one more than that before, as converted scripts give it on several processes.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

__all__ = ["Box", "Discrete", "Env", "make", "spaces"]


class Discrete:
    """A choice of n."""

    def __init__(self, n: int) -> None:
        self.n, self.shape = n, ()
        self._rng = np.random.default_rng()

    def seed(self, seed: int | None = None) -> None:
        """Start its generator anew."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> int:
        """One of them."""
        return int(self._rng.integers(self.n))


class Box:
    """Numbers between bounds."""

    def __init__(self, low: Any, high: Any, shape: tuple[int, ...]) -> None:
        self.low = np.broadcast_to(np.float32(low), shape)
        self.high = np.broadcast_to(np.float32(high), shape)
        self.shape, self.dtype = shape, np.dtype(np.float32)
        self._rng = np.random.default_rng()

    def seed(self, seed: int | None = None) -> None:
        """Start its generator anew."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> np.ndarray:
        """A point in it."""
        return self._rng.uniform(self.low, self.high).astype(np.float32)


spaces = SimpleNamespace(Discrete=Discrete, Box=Box)


class Env:
    """What both environments share: seeding, the end of an episode, the answers' shapes."""

    limit = 200
    threshold = 195.0
    observation_space: Any
    action_space: Any

    def __init__(self, **_: Any) -> None:
        self.spec = SimpleNamespace(reward_threshold=self.threshold, max_episode_steps=self.limit)
        self.np_random = np.random.default_rng()
        self.state = np.zeros(1)
        self.steps = 0

    @property
    def unwrapped(self) -> Env:
        """The environment itself."""
        return self

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode."""
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.steps = 0
        self.state = self.start()
        return self.observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One action: what is seen, the reward, whether it fell, whether time is up."""
        self.steps += 1
        reward, fallen = self.act(action)
        return self.observe(), reward, fallen, self.steps >= self.limit, {}

    def start(self) -> np.ndarray:
        """The state at the beginning of an episode."""
        raise AssertionError("an environment says how it starts")

    def observe(self) -> np.ndarray:
        """What can be seen of the state."""
        return self.state.astype(np.float32)

    def act(self, action: Any) -> tuple[float, bool]:
        """Change the state; the reward, and whether the episode is over."""
        raise AssertionError("an environment says what an action does")

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeding of old releases."""
        self.np_random = np.random.default_rng(seed)
        return [seed]

    def render(self) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is open."""


class CartPole(Env):
    """A pole on a cart that is pushed to the left or to the right."""

    observation_space, action_space = Box(-5.0, 5.0, (4,)), Discrete(2)

    def start(self) -> np.ndarray:
        return self.np_random.uniform(-0.05, 0.05, 4)

    def act(self, action: Any) -> tuple[float, bool]:
        x, speed, angle, turning = self.state
        force = 10.0 if int(action) == 1 else -10.0
        pull = (force + 0.05 * turning**2 * math.sin(angle)) / 1.1
        bend = (9.8 * math.sin(angle) - math.cos(angle) * pull) / (0.67 - 0.045 * math.cos(angle) ** 2)
        self.state = np.array(
            [x + 0.02 * speed, speed + 0.02 * (pull - 0.045 * bend * math.cos(angle)),
             angle + 0.02 * turning, turning + 0.02 * bend]
        )  # fmt: skip
        return 1.0, bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)


class Pendulum(Env):
    """A pendulum to swing up."""

    observation_space, action_space = Box(-8.0, 8.0, (3,)), Box(-2.0, 2.0, (1,))

    def start(self) -> np.ndarray:
        return self.np_random.uniform([-math.pi, -1.0], [math.pi, 1.0])

    def observe(self) -> np.ndarray:
        angle, speed = self.state
        return np.array([math.cos(angle), math.sin(angle), speed], dtype=np.float32)

    def act(self, action: Any) -> tuple[float, bool]:
        angle, speed = self.state
        push = float(np.clip(np.asarray(action, dtype=float).reshape(-1)[0], -2.0, 2.0))
        away = (angle + math.pi) % (2 * math.pi) - math.pi
        speed = float(np.clip(speed + 0.05 * (15.0 * math.sin(angle) + 3.0 * push), -8.0, 8.0))
        self.state = np.array([angle + 0.05 * speed, speed])
        return -(away**2 + 0.1 * speed**2 + 0.001 * push**2), False


_ENVIRONMENTS = {"CartPole": CartPole, "Pendulum": Pendulum}


_numbers = itertools.count()


def make(name: str, **options: Any) -> Env:
    """The environment of that name, whatever its version."""
    made: Env = _ENVIRONMENTS[name.partition("-")[0]](**options)
    seed = torch.initial_seed() % 2**31 + next(_numbers)
    made.reset(seed=seed)
    made.action_space.seed(seed)
    return made
