"""ACC212: environments that nobody seeds."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from accelify.conversion import Conversion, ConvertOptions
from accelify.convert import convert_project, convert_source
from accelify.source import Source
from tests.transforms.support import PATH, codes

SCRIPT = """\
import gym
import torch
from torch import nn


class Agent:
    def __init__(self, env):
        self.env = env
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def learn(self, state, reward):
        loss = -reward * self.model(torch.as_tensor(state)).max()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
{made}
    agent = Agent(env)
{behind}
    for episode in range(10):
        state = env.reset()
        done = False
        while not done:
            {step}
            agent.learn(state, reward)


if __name__ == "__main__":
    main()
"""
OLD = "state, reward, done, info = env.step({action})"
NEW = "state, reward, done, cut, info = env.step({action})"


def converted(
    made: str, step: str = OLD, action: str = "0", behind: str = "", library: str = "gym", **options: str
) -> Conversion:
    text = SCRIPT.format(
        made=textwrap.indent(made, "    "),
        step=step.format(action=action),
        behind=textwrap.indent(behind, "    "),
    ).replace("import gym\n", f"import {library}\n")
    conversion = convert_source(Source.from_text(text, PATH), ConvertOptions(**options))
    assert conversion.status == "converted", conversion.reason
    compile(conversion.new_text, "after.py", "exec", dont_inherit=True)
    return conversion


def test_the_old_form_is_seeded_once_the_accelerator_is_made() -> None:
    text = converted('env = gym.make("CartPole-v0")').new_text
    seeded = "    if agent.accelerator.num_processes > 1:\n        env.seed(torch.initial_seed() % 2**31)\n"
    assert f"    agent = Agent(env)\n{seeded}" in text


def test_the_new_form_is_seeded_by_a_reset() -> None:
    text = converted('env = gym.make("CartPole-v1")', NEW).new_text
    assert "        env.reset(seed=torch.initial_seed() % 2**31)\n" in text
    text = converted(
        'env = gymnasium.make("CartPole-v1")', "env.step(0)\n            reward = 1.0", library="gymnasium"
    )
    assert "        env.reset(seed=torch.initial_seed() % 2**31)\n" in text.new_text


def test_the_space_of_actions_has_a_generator_of_its_own() -> None:
    text = converted('env = gym.make("CartPole-v1")', NEW, "env.action_space.sample()").new_text
    assert "        env.action_space.seed(torch.initial_seed() % 2**31)\n" in text


def test_actions_that_are_drawn_before_the_seed_need_none() -> None:
    """Such a generator is not there in every version of the library."""
    asked = 'env = gym.make("CartPole-v0")\nsize = len(env.action_space.sample())'
    assert "action_space.seed" not in converted(asked).new_text
    assert "action_space.seed" in converted(asked, action="env.action_space.sample()").new_text
    assert "action_space.seed" in converted(asked, behind="first = env.action_space.sample()").new_text


def test_a_wrapper_is_passed_by() -> None:
    text = converted('env = gym.wrappers.FlattenObservation(gym.make("CartPole-v1"))', NEW).new_text
    assert "        env.unwrapped.reset(seed=torch.initial_seed() % 2**31)\n" in text


def test_each_environment_has_a_seed_of_its_own() -> None:
    text = converted('env = gym.make("CartPole-v0")\ntest = gym.make("CartPole-v0")').new_text
    assert "        test.seed(torch.initial_seed() % 2**31 + 1)\n" in text


def test_who_seeds_is_left_alone() -> None:
    made = 'env = gym.make("CartPole-v0")'
    assert "ACC212" not in codes(converted(f"{made}\nenv.seed(3)"))
    assert "ACC212" not in codes(converted(made, NEW, behind="env.reset(seed=3)"))


@pytest.mark.parametrize(
    ("behind", "seeded"),
    [
        ("test.reset()", True),
        ("play(test)", True),
        # It tells only how large its spaces are.
        ("print(test.observation_space)", False),
        ("test.reset(seed=4)", False),
        # Who seeds what it is handed may be handed this one.
        ("test.reset()\nother.seed(3)", False),
    ],
)
def test_one_that_was_forgotten_beside_one_that_is_seeded(behind: str, seeded: bool) -> None:
    made = 'env = gym.make("CartPole-v0")\nenv.seed(3)\ntest = gym.make("CartPole-v0")\nother = play'
    text = converted(made, behind=behind).new_text
    seed = "        test.seed(torch.initial_seed() % 2**31)\n"
    assert (seed in text) == seeded
    assert text.count(".initial_seed()") == seeded


def test_where_it_cannot_be_seeded_it_is_said() -> None:
    unknown = converted('env = gym.make("CartPole-v0")', "reward = env.step(0)[1]")
    assert [f.fixable for f in unknown.remaining if f.code == "ACC212"] == [False]
    early = converted('env = gym.make("CartPole-v0")\nstate = env.reset()')
    assert [f.fixable for f in early.remaining if f.code == "ACC212"] == [False]
    other = converted('env = gym.make("CartPole-v0")', runtime="accelerate")
    assert [f.fixable for f in other.remaining if f.code == "ACC212"] == [False]


def test_several_made_by_one_helper_are_said() -> None:
    made = 'env, other = [gym.make("CartPole-v0") for _ in range(2)]'
    assert "env.seed" not in converted(made).new_text
    made = 'for _ in range(2):\n    env = gym.make("CartPole-v0")'
    assert [f.fixable for f in converted(made).remaining if f.code == "ACC212"] == [False]


PARSER = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--seed', {default})\n"
ASKED = "args = parser.parse_args()\n{make}if {test}:\n    {seed}\n"
MAKE = 'env = gym.make("CartPole-v0")\n'


@pytest.mark.parametrize(
    ("default", "test"),
    [
        ("default=-1, type=int", "args.seed > 0"),
        ("type=int", "args.seed is not None"),
        ("default=0, type=int", "args.seed"),
        ("default=None, type=int", "args.seed is not None and args.seed >= 0"),
    ],
)
def test_a_seed_that_only_an_option_asks_for(default: str, test: str) -> None:
    asked = ASKED.format(make=MAKE, test=test, seed="env.seed(args.seed)")
    found = converted(PARSER.format(default=default) + asked)
    seeded = "        env.seed(torch.initial_seed() % 2**31)\n"
    assert f"    if agent.accelerator.num_processes > 1 and not ({test}):\n{seeded}" in found.new_text
    assert f"nobody seeds `env` unless `{test}`" in "".join(f.message for f in found.applied)


@pytest.mark.parametrize(
    ("default", "test"),
    [("default=1, type=int", "args.seed > 0"), ("default=seed()", "args.seed"), ("default=-1", "args.other")],
)
def test_a_seed_that_is_given_by_default(default: str, test: str) -> None:
    asked = ASKED.format(make=MAKE, test=test, seed="env.seed(args.seed)")
    assert "ACC212" not in codes(converted(PARSER.format(default=default) + asked))


def test_an_agent_that_seeds_what_is_not_the_environment() -> None:
    text = SCRIPT.replace(
        "    def learn", "    def seed(self, n):\n        torch.manual_seed(n)\n\n    def learn"
    )
    text = text.format(made=f"    {MAKE}", step=OLD.format(action=0), behind="    agent.seed(1)")
    found = convert_source(Source.from_text(text, PATH))
    assert "env.seed(torch.initial_seed() % 2**31)" in found.new_text


@pytest.mark.parametrize("value", ["0", "None", "False"])
@pytest.mark.parametrize("told", ["wanted = {}\n", "wanted: int = {}\n"])
def test_a_seed_that_a_variable_switches_off(value: str, told: str) -> None:
    found = converted(told.format(value) + ASKED.format(make=MAKE, test="wanted", seed="env.seed(wanted)"))
    seeded = "        env.seed(torch.initial_seed() % 2**31)\n"
    assert f"    if agent.accelerator.num_processes > 1 and not (wanted):\n{seeded}" in found.new_text


@pytest.mark.parametrize(
    "told",
    ["wanted = 3", "wanted = 0\nwanted = 3", "wanted = 0\nwanted += 3", "for wanted in (0, 1):\n    pass"],
)
def test_a_seed_that_a_variable_gives(told: str) -> None:
    asked = ASKED.format(make=MAKE, test="wanted", seed="env.seed(wanted)")
    assert "ACC212" not in codes(converted(f"{told}\n{asked}"))


def test_a_seed_that_a_caller_gives() -> None:
    asked = f"{MAKE}if wanted:\n    env.seed(wanted)"
    text = SCRIPT.format(made=textwrap.indent(asked, "    "), step=OLD.format(action=0), behind="")
    text = text.replace("def main():", "def main(wanted=0):")
    assert "ACC212" not in codes(convert_source(Source.from_text(text, PATH)))


AGENT = """\
import torch


class Agent:
    def __init__(self):
        self.net = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def learn(self, state):
        loss = self.net(torch.as_tensor(state)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
TWO_FILES = """\
import gym
import torch
from agent import Agent

seed = {seed}
env = gym.make("Pendulum-v1")
agent = Agent()
if seed:
    env.seed(seed)
for episode in range(10):
    agent.learn(env.reset())
"""


@pytest.mark.parametrize(("seed", "unseeded"), [("0", True), ("None", True), ("3", False)])
def test_a_seed_that_a_variable_switches_off_where_another_file_trains(
    tmp_path: Path, seed: str, unseeded: bool
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "train.py").write_text(TWO_FILES.format(seed=seed))
    found = convert_project(Source.read(tmp_path / "train.py"))
    assert any("ACC212" in codes(conversion) for conversion in found) is unseeded
