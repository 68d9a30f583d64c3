"""Small random programs in which ranks may go different ways, and whether they all meet."""

from __future__ import annotations

import random
import threading

from tests.heap.programs import HEAD as ALL_HELPERS
from tests.heap.programs import run_on

HEAD = ALL_HELPERS.partition("class Meter")[0].replace("MODE", "")
OF_ALL = ("flag", "len(dataset) > 5", "len(loader) > 4", "epoch == 0", "epoch > 0", "t > 2")
OF_A_RANK = ("v > 0.2", "v < 0", "stop", "not stop", "accelerator.is_main_process")
OF_A_ROUND = ("i % 2 == 0", "i == 0", "i + 1 == len(loader)", "x.sum() > 0", "bool((x > 1.5).any())")
MEETINGS = (
    'u = accelerator.reduce(v, "sum")',
    "accelerator.gather(torch.tensor([float(v)], dtype=torch.float64))",
)
PUT_TOGETHER = (
    'v = float(accelerator.reduce(v, "mean"))',
    't = float(accelerator.reduce(v, "sum"))',
    'stop = bool(accelerator.reduce(float(stop), "sum") > 0)',
)
SET = (
    *(
        "v = v + 0.1",
        "v = t * 1.0",
        "t += 1",
        "v = v * 0.5",
        "v = t",
        "t = 0",
        "stop = v > 0.5",
        "stop = t > 3",
    ),
    *("stop = False", "stop = stop or v < -0.3", "stop = flag"),
)
SET_BY_A_BATCH = ("v = x.sum().item()", "v = x.max().item()", "v = y.mean().item()")
TIMES = ("2", "3", "len(dataset) // 12", "len(loader)", "(3 if v > 0 else 2)")


class Writer:
    """Draws the statements of a program."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines: list[str] = []
        self.indent = 0
        self.loops = 0
        self.of_batches = False

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def one(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def condition(self) -> str:
        if self.chance.random() < 0.1:
            return 'accelerator.reduce(v, "sum") > 0.5'
        more = OF_A_ROUND if self.of_batches else ()
        return self.one(*self.chance.choice((OF_ALL, (*OF_A_RANK, *more))))

    def leave(self) -> str:
        return self.one("return", "pass", *(("break", "continue") if self.loops else ()))

    def block(self, depth: int) -> None:
        self.indent += 1
        for _ in range(self.chance.randint(1, 2)):
            self.step(depth)
        self.indent -= 1

    def step(self, depth: int) -> None:
        """A statement."""
        what = self.one("meet", "meet", "put", "if", "if", "if", "set", "set", "leave", "try", "loop", "best")
        if what == "meet":
            self.add(self.one(*MEETINGS))
        elif what == "put":
            self.add(self.one(*PUT_TOGETHER))
        elif what == "if" and depth < 3:
            self.add(f"if {self.condition()}:")
            self.block(depth + 1)
            if self.chance.random() < 0.4:
                self.add("else:")
                self.block(depth + 1)
        elif what == "leave" and depth:
            self.add(self.leave())
        elif what == "try" and depth < 3:
            self.add("try:")
            self.block(depth + 1)
            self.add("except ValueError:")
            self.add("    stop = True")
        elif what == "loop" and depth < 2:
            self.add(f"for k{depth} in range({self.one(*TIMES)}):")
            self.loops += 1
            self.block(depth + 1)
            self.loops -= 1
        elif what == "best":
            self.lines += [
                "    " * self.indent + line
                for line in ("if v < best:", "    best = v", "    wait = 0", "else:", "    wait += 1")
            ]
            self.add(f"if wait > 1: {self.leave()}")
        else:
            self.add(self.one(*SET, *(SET_BY_A_BATCH * 2 if self.of_batches else ())))

    def program(self) -> str:
        """The text of a program."""
        self.lines = ["flag = len(dataset) > 5", "def run():"]
        self.indent = 1
        self.add("t, v, stop, best, wait = 0, 0.1, False, 9.0, 0")
        self.add("for epoch in range(2):")
        self.indent = self.loops = 2
        self.add("for i, (x, y) in enumerate(loader):")
        self.indent, self.of_batches = 3, True
        self.add(self.one("v = x.mean().item()", "v = x.sum().item()", "pass"))
        for _ in range(self.chance.randint(1, 3)):
            self.step(1)
        self.indent, self.of_batches, self.loops = 2, False, 1
        for _ in range(self.chance.randint(0, 3)):
            self.step(0)
        self.indent, self.loops = 1, 0
        for _ in range(self.chance.randint(0, 2)):
            self.step(0)
        # Ranks that have not met as often as the others are found here.
        self.lines += ["run()", MEETINGS[0].replace("v", "1.0")]
        return HEAD + "\n".join(self.lines) + "\n"


def goes_through(text: str) -> bool:
    """Whether one process comes to the end."""
    return all(run_on(text, 1, seed)[1] is None for seed in range(3))


def all_meet(text: str) -> bool:
    """Whether several ranks come to the end, of some batches."""
    errors = [run_on(text, size, seed)[1] for size in (2, 3) for seed in range(5)]
    assert all(one is None or isinstance(one, threading.BrokenBarrierError) for one in errors), errors
    return not any(errors)
