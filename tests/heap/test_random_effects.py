"""Side effects that the engine calls proved to be the main process's, against threads in place of ranks."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accelify.knowledge import Knowledge
from accelify.obligations import Obligation, Status, validate
from tests.heap import ways
from tests.heap.programs import run_on

KNOWLEDGE = Knowledge()
CONDITIONS = (
    *("main", "not main", "rank == 0", "rank != 0", "rank > 0", "rank < 1", "not rank", "t == 0", "flag"),
    *("accelerator.is_main_process", "accelerator.process_index == 0", "settings.main", "state['main']"),
    *("main and flag", "main or flag", "rank == 0 and epoch == 0", "flag and rank == 0", "is_main()"),
)
EFFECTS = (
    *("print(t)",) * 8,
    "main and print(t)",
    "print(t) if main else None",
    "by(main)",
    "show(t)",
    "log(t)",
)
HELPERS = """\
flag = len(dataset) > 5
rank = accelerator.process_index
main = rank == 0
state = {'main': main}
class Settings: pass
settings = Settings()
settings.main = accelerator.is_main_process
def is_main():
    return accelerator.is_main_process
def by(one):
    if not one:
        return
    print(one)
def show(value):
    if accelerator.is_main_process:
        print(value)
class Log:
    def __init__(self, on):
        self.on = on
    def __call__(self, value):
        if self.on:
            print(value)
log = Log(main)
"""


class Writer(ways.Writer):
    """Draws programs that print here and there."""

    def condition(self) -> str:
        return self.one(*CONDITIONS) if self.chance.random() < 0.7 else super().condition()

    def step(self, depth: int) -> None:
        if self.chance.random() < 0.35:
            self.add(self.one(*EFFECTS))
        else:
            super().step(depth)

    def program(self) -> str:
        text = super().program()
        return text.replace("flag = len(dataset) > 5\n", HELPERS, 1)


def obligations(text: str, *demands: str) -> list[Obligation]:
    return [one for one in validate(text, None, KNOWLEDGE).obligations if one.demand in demands]


def lines_of_others(text: str, sizes: tuple[int, ...] = (2, 3)) -> set[int] | None:
    """Lines in which another rank than the main process prints, on some data; None: it does not come to the end."""
    printed: Counter[int] = Counter()

    def names(rank: int) -> dict[str, Any]:
        return {"print": lambda *_: printed.update([sys._getframe(1).f_lineno] if rank else [])}

    errors = [run_on(text, size, seed, names)[1] for size in sizes for seed in range(4)]
    return None if any(errors) else set(printed)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(st.integers(0, 2**32))
def test_what_is_proved_to_happen_once_does(seed: int) -> None:
    text = Writer(random.Random(seed)).program()
    found = obligations(text, "once", "all ranks", "same")
    # Ranks that do not meet wait for each other.
    assume(not any(one.status is Status.NAMED for one in found if one.demand != "once"))
    named = {one.line for one in found if one.status is Status.NAMED}
    proved = {one.line for one in found if one.demand == "once"} - named
    assume(proved and lines_of_others(text, (1,)) is not None)
    found_there = lines_of_others(text)
    assert found_there is not None, text
    assert not proved & found_there, text
