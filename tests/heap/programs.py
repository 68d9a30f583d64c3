"""Small random programs, and what they print as the original and as several ranks.

The ranks are threads that share a small Accelerator in plain Python. Per process, round i of rank r is the original's
round i * N + r; in total, each rank has a share of every batch.
"""

from __future__ import annotations

import builtins
import copy
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

ROUNDS, BATCH = 6, 6
NAME = "program.py"
HEAD = """\
import math
import numpy as np
import torch
from torch.utils.data import DataLoader
from accelify.runtime import Accelerator
accelerator = Accelerator(MODE)
dataset = torch.load("data.pt")
loader = accelerator.prepare(DataLoader(dataset, batch_size=6))
class Meter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0
        self.last = 0.0
    def update(self, value, n=1):
        self.last = value
        self.sum += value * n
        self.count += n
    @property
    def avg(self):
        return self.sum / self.count
    def reset(self):
        self.sum, self.count = 0.0, 0
def half(value):
    return value / 2
def bent(value):
    return math.tanh(float(value))
def choose(value, other):
    if isinstance(value, int):
        return other
    return value + other
"""


@dataclass
class Printed:
    """What one line of a program printed, in order, in or out of its shared loop."""

    values: dict[int, list[Any]] = field(default_factory=dict)

    def add(self, line: int, values: tuple[Any, ...]) -> None:
        self.values.setdefault(line, []).append([plain(value) for value in values])


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().double().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


class Ranks:
    """Where ranks meet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size

    def meet(self, rank: int, value: Any) -> list[Any]:
        # A copy: the others read it while this rank goes on.
        self.slots[rank] = copy.deepcopy(value)
        self.barrier.wait(5)
        together = list(self.slots)
        self.barrier.wait(5)
        return together


class Accelerator:
    """What the programs use of it."""

    def __init__(self, ranks: Ranks, rank: int, printed: Printed, split_batches: bool) -> None:
        self.ranks, self.rank, self.printed, self.split = ranks, rank, printed, split_batches
        self.num_processes = ranks.size
        self.is_main_process = rank == 0
        self.process_index = rank

    def prepare(self, loader: Any) -> Any:
        size, rank = self.ranks.size, self.rank
        if self.split:
            share = BATCH // size
            batches = [
                tuple(part[rank * share : rank * share + share] for part in batch) for batch in loader.batches
            ]
        else:
            batches = loader.batches[rank::size]
        return Loader(batches, loader.dataset)

    def print(self, *values: Any) -> None:
        self.printed.add(sys._getframe(1).f_lineno, values)

    def reduce(self, value: Any, reduction: str = "sum") -> Any:
        together = torch.stack(
            [torch.as_tensor(one, dtype=torch.float64) for one in self.ranks.meet(self.rank, value)]
        )
        return together.sum(0) if reduction == "sum" else together.mean(0)

    def gather(self, value: Any) -> Any:
        together = [torch.as_tensor(one, dtype=torch.float64) for one in self.ranks.meet(self.rank, value)]
        return torch.cat([one[None] if one.ndim == 0 else one for one in together])

    gather_for_metrics = gather

    def gather_object(self, values: list[Any]) -> list[Any]:
        return [one for part in self.ranks.meet(self.rank, list(values)) for one in part]


@dataclass
class Loader:
    """Batches that are there already."""

    batches: list[Any]
    dataset: Any

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        return iter(self.batches)


def data(seed: int) -> list[tuple[Any, Any]]:
    numbers = torch.Generator().manual_seed(seed)
    return [
        tuple(torch.rand(BATCH, dtype=torch.float64, generator=numbers) * 3 - 1 for _ in range(2))
        for _ in range(ROUNDS)
    ]


def run_on(
    text: str, size: int, seed: int, names: Callable[[int], dict[str, Any]] = lambda _: {}
) -> tuple[Printed, BaseException | None]:
    """What the main rank prints, and what went wrong; `names` gives each rank's further built-in names."""
    code = compile(text, NAME, "exec")
    ranks = Ranks(size)
    printed = [Printed() for _ in range(size)]
    errors: list[BaseException] = []
    batches = data(seed)

    def of(rank: int) -> None:
        fakes = {
            "math": math,
            "numpy": np,
            "torch": SimpleNamespace(**{**vars(torch), "load": lambda _: [0] * (ROUNDS * BATCH)}),
            "torch.utils.data": SimpleNamespace(
                DataLoader=lambda dataset, batch_size: Loader(batches, dataset)
            ),
            "accelify.runtime": SimpleNamespace(
                Accelerator=lambda split_batches=False: Accelerator(ranks, rank, printed[rank], split_batches)
            ),
        }
        scope: dict[str, Any] = {
            "__name__": "__main__",
            "__builtins__": {**vars(builtins), "__import__": lambda name, *_: fakes[name], **names(rank)},
        }
        try:
            exec(code, scope)
        except BaseException as error:
            errors.append(error)
            ranks.barrier.abort()

    if size == 1:
        of(0)
    else:
        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    first = next((one for one in errors if not isinstance(one, threading.BrokenBarrierError)), None)
    return printed[0], first or (errors[0] if errors else None)


def close(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(close, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9) or (
            math.isnan(left) and math.isnan(right)
        )
    return bool(left == right)


def same_figures(original: list[Any], ranks: list[Any], size: int) -> bool:
    """Whether a line shows the original's figures, in a shared loop those after as many rounds."""
    if len(original) == len(ranks):
        return close(original, ranks)
    if len(original) == len(ranks) * size:
        return close(original[size - 1 :: size], ranks)
    return False


# Programs


class Writer:
    """Draws the statements of a program."""

    def __init__(self, draw: Callable[..., Any], total: bool) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.indent = 0
        self.total = total
        self.numbers: list[str] = []
        self.totals: list[str] = []
        self.rows: list[str] = []
        self.lists: list[str] = []
        self.made = 0
        self.quiet = 0

    def one(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def row(self) -> str:
        base = self.one(*self.rows)
        return self.one(
            base,
            base,
            f"({base} * 2)",
            f"({base} - {self.one(*self.rows)})",
            f"{base}.abs()",
            f"({base} > 0.5)",
        )

    def of_rows(self) -> str:
        row = self.row()
        return self.one(
            f"({row}).sum()",
            f"({row}).double().mean()",
            f"({row}).sum().item()",
            f"({row}).max()",
            f"len({self.one(*self.rows)})",
            f"({row}).shape[0]",
            f"(({row}) * 1.0).mean().item()",
        )

    def number(self, depth: int = 0) -> str:
        choices = [*self.numbers, *self.numbers, "2.0", "1"]
        if self.rows and depth < 2:
            choices += [self.of_rows(), self.of_rows()]
        if depth < 2:
            left, right = self.number(depth + 1), self.number(depth + 1)
            choices += [
                f"({left} + {right})", f"({left} - {right})", f"({left} * {right})", f"half({left})", f"bent({left})",
                f"({left} / len(loader))", f"({left} / {right})",
                f"({left} if flag else {right})", f"choose({left}, {right})",
            ]  # fmt: skip
        return self.one(*choices)

    def begin(self) -> None:
        self.add("flag = len(dataset) > 5")
        for _ in range(self.draw(st.integers(1, 3))):
            total = self.name("t")
            self.add(f"{total} = {self.one('0.0', '0', '0.0', 'torch.zeros(1, dtype=torch.float64)', '1.5')}")
            self.totals.append(total)
            self.numbers.append(total)
        kind = self.one("meter", "dict", "list", "none")
        if kind == "meter":
            self.add("meter = Meter()")
        elif kind == "dict":
            self.add('figures = {"a": 0.0, "b": 0.0}')
            self.numbers += ['figures["a"]', 'figures["b"]']
            self.totals += ['figures["a"]', 'figures["b"]']
        elif kind == "list":
            self.add("found = []")
            self.lists.append("found")
        self.kind = kind

    def inside(self, depth: int = 0) -> None:
        """A statement of the shared loop."""
        what = self.one(
            "value", "value", "add", "add", "add", "add", "add", "reduce", "gather", "if", "inner", "count", "scaled",
            "keep", "print", "leave",
        )  # fmt: skip
        collective = depth == 0
        if what == "value":
            name = self.name("v")
            self.add(f"{name} = {self.of_rows() if self.one('rows', 'any') == 'rows' else self.number()}")
            if depth == 0:
                self.numbers.append(name)
        elif what in ("add", "if", "inner") and (what == "add" or depth > 0):
            self.accumulate()
        elif what == "reduce" and collective:
            name = self.name("r")
            self.add(f"{name} = accelerator.reduce({self.number(1)}, {self.one('sum', 'mean')!r})")
            self.numbers.append(name)
        elif what == "gather" and collective:
            name = self.name("g")
            self.add(f"{name} = accelerator.gather({self.one(*self.rows)})")
            self.rows.append(name)
        elif what == "if":
            condition = self.one("flag", "flag", "len(dataset) < 5", f"{self.number(1)} > 0.3", "x.sum() > 0")
            self.add(f"if {condition}:")
            self.nested(depth)
            if self.one("else", "none") == "else":
                self.add("else:")
                self.nested(depth)
        elif what == "inner":
            self.add(f"for k in range({self.one('2', '3')}):")
            self.quiet += 1
            self.nested(depth)
            self.quiet -= 1
        elif what == "count":
            self.add(f"{self.one(*self.totals)} += 1")
        elif what == "scaled":
            total = self.one(*self.totals)
            self.add(f"{total} = {total} * 0.9 + {self.number(1)}")
        elif what == "keep":
            name = self.name("p")
            self.add(f"{name} = {self.one(*self.totals)}")
            if depth == 0:
                self.numbers.append(name)
        elif what == "leave" and depth > 0:
            self.add(self.one("continue", "pass"))
        else:
            # In a loop within the loop a line prints several times a round.
            self.add("pass" if self.quiet else f"accelerator.print({self.number(1)})")

    def nested(self, depth: int) -> None:
        self.indent += 1
        before = list(self.numbers), list(self.rows)
        for _ in range(self.draw(st.integers(1, 2))):
            self.inside(depth + 1)
        self.numbers, self.rows = before
        self.indent -= 1

    def accumulate(self) -> None:
        choices = ["add", "add", "add", "sub", "long", "highest"]
        choices += {"meter": ["meter"] * 3, "list": ["append", "append", "extend"]}.get(self.kind, [])
        what, value = self.one(*choices), self.number(1)
        total = self.one(*self.totals)
        if what == "meter":
            self.add(f"meter.update({value}{self.one('', ', len(x)', ', n=x.shape[0]')})")
        elif what == "append":
            self.add(f"found.append({value})")
        elif what == "extend":
            self.add(f"found.extend(({self.row()}).tolist())")
        elif what == "long":
            self.add(f"{total} = {total} + {value}")
        elif what == "highest":
            self.add(f"{total} = max({total}, {value})")
        else:
            self.add(f"{total} {'+' if what == 'add' else '-'}= {value}")

    def after(self) -> None:
        """What is made of the totals."""
        if self.kind == "meter":
            self.numbers += ["meter.sum", "meter.count", "meter.avg", "meter.last"]
            self.totals += ["meter.sum", "meter.sum", "meter.count"]
        if self.kind == "list":
            sums = ["sum(found)", "len(found)", "np.mean(found)", "(sum(found) / len(found))"]
            self.numbers += sums
            self.totals += sums
        for _ in range(self.draw(st.integers(1, 4))):
            what = self.one("reduce", "reduce", "gather", "value", "mean")
            name = self.name("e")
            of = self.one(*self.totals) if self.one("t", "n") == "t" else self.number(1)
            if what == "reduce":
                self.add(f"{name} = accelerator.reduce({of}, {self.one('sum', 'mean')!r})")
            elif what == "gather":
                how = self.one("sum", "mean", "max")
                self.add(f"{name} = accelerator.gather({of}).{how}()")
            elif what == "mean":
                by = self.one("len(loader)", "len(dataset)", "accelerator.num_processes", *self.totals)
                self.add(f"{name} = {of} / {by}")
            else:
                self.add(f"{name} = {self.number()}")
            self.numbers.append(name)
            self.totals.append(name)
            self.add(f"accelerator.print({name})")
        for _ in range(self.draw(st.integers(1, 3))):
            self.add(f"accelerator.print({self.number(1)})")


@st.composite
def programs(draw: Callable[..., Any]) -> str:
    """The text of a program."""
    total = draw(st.booleans())
    writer = Writer(draw, total)
    writer.begin()
    epochs = draw(st.integers(0, 3)) == 0
    if epochs:
        writer.add("for epoch in range(2):")
        writer.indent += 1
        if draw(st.booleans()):
            writer.add(f"{writer.one(*writer.totals)} = 0.0")
    counted = writer.one("no", "no", "0", "1")
    if counted == "no":
        writer.add("for x, y in loader:")
    else:
        writer.add(f"for i, (x, y) in enumerate(loader{', 1' if counted == '1' else ''}):")
    writer.indent += 1
    writer.rows += ["x", "y"]
    inner = ["(i + 1)", "i"] if counted == "0" else ["i"] if counted == "1" else []
    writer.numbers += inner
    for _ in range(draw(st.integers(1, 5))):
        writer.inside()
    writer.indent -= 1
    writer.rows = []
    writer.after()
    return HEAD.replace("MODE", "split_batches=True" if total else "") + "\n".join(writer.lines) + "\n"
