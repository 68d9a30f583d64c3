"""Environments that record videos."""

from __future__ import annotations

import pytest

from accelify.conversion import Conversion
from tests.transforms.support import check_transformed, convert, place_of

IMPORTS = "import gymnasium as gym\nfrom gymnasium.wrappers import RecordVideo"
GUARD = "if accelerator.is_main_process:\n    "
MAKER = """
def make(name, folder):
    def thunk():
        env = gym.make(name)
        {wrapped}
        return env
    return thunk
"""
WRAP = "env = gym.wrappers.RecordVideo(env, folder)"


def said(conversion: Conversion) -> list[str]:
    return [f.message for f in conversion.remaining if f.code == "ACC203"]


@pytest.mark.parametrize("wrapper", ["RecordVideo", "gym.wrappers.RecordVideo"])
def test_the_main_process_wraps_it(wrapper: str) -> None:
    made = f"env = gym.make('A')\nenv = {wrapper}(env, 'videos')\nenv.reset(seed=1)"
    after = made.replace(f"env = {wrapper}", f"{GUARD}env = {wrapper}")
    assert not said(check_transformed("ready", made, after, imports=IMPORTS))


def test_what_is_made_within_is_made_by_all() -> None:
    made = "env = RecordVideo(gym.make('A', render_mode='x'), 'videos', fps=3)\nenv.reset(seed=1)"
    after = f"env = gym.make('A', render_mode='x')\n{GUARD}env = RecordVideo(env, 'videos', fps=3)\nenv.reset(seed=1)"
    assert not said(check_transformed("ready", made, after, imports=IMPORTS))


def test_in_a_function_that_makes_one_of_several() -> None:
    several = "envs = gym.vector.SyncVectorEnv([make('A', 'videos')])\nenvs.reset(seed=1)"
    conversion = convert(imports=IMPORTS, setup=MAKER.format(wrapped=WRAP), ready=several)
    assert f"        if accelerator.is_main_process:\n            {WRAP}\n" in conversion.new_text
    assert not said(conversion)


@pytest.mark.parametrize(
    ("wrapped", "several"),
    [
        (WRAP, "envs = gym.vector.AsyncVectorEnv([make('A', 'videos')])\nenvs.reset(seed=1)"),
        ("return gym.wrappers.RecordVideo(env, folder)", "env = make('A', 'videos')()\nenv.reset(seed=1)"),
        (WRAP, "env = make('A', 'videos')()\nenv.reset(seed=1)\nprint(env.recorded_frames)"),
    ],
)
def test_what_every_process_wraps_is_said(wrapped: str, several: str) -> None:
    conversion = convert(imports=IMPORTS, setup=MAKER.format(wrapped=wrapped), ready=several)
    assert place_of(conversion.new_text, "setup") == MAKER.format(wrapped=wrapped).strip()
    (message,) = said(conversion)
    assert message.startswith("every process records videos of these episodes")


def test_other_wrappers_stay() -> None:
    made = "env = gym.wrappers.TimeLimit(gym.make('A'), 5)\nenv = Monitor(env)\nenv.reset(seed=1)"
    imports = f"{IMPORTS}\nfrom own import Monitor"
    assert not said(check_transformed("ready", made, made, imports=imports))
