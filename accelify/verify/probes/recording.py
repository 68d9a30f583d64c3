"""What probes see in one process: how often each place is reached, and the values there as numbers and texts.

Each of the first times at a place is one event "probe"; further ones are counted, in "probe_count" at the end.
"""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from accelify.verify.observe import clock
from accelify.verify.observe.context import Context
from accelify.verify.probes.inserting import CALLED, MOST, PROBE, REACHED, RECEIVER, RESULT, Row, insert

_PARTS = 40
_SHORT = 8
"""Elements up to which an array is written as its numbers; larger ones as three sums."""
_LARGEST = 1 << 21
_LONGEST = 2_000
_BEGINNING = (CALLED, RECEIVER, RESULT, REACHED)


class Probes:
    """The probes of one process.

    Args:
        context: takes the events.
        rows: the places by file.
    """

    def __init__(self, context: Context, rows: Mapping[str, Sequence[Row]]) -> None:
        self.context = context
        self.rows = rows
        self.counts: Counter[int] = Counter()
        self._process = os.getpid()
        self._open: dict[tuple[int, int], list[tuple[str, list[Any]]]] = {}

    def finish(self) -> None:
        """Write how often each place was reached."""
        if os.getpid() == self._process:
            for number, count in self.counts.items():
                self.context.emit("probe_count", number=number, count=count)

    def show(self, number: int, part: str, value: Any, last: bool) -> Any:
        """What the user's code calls: takes a value in and returns it."""
        if torch.compiler.is_dynamo_compiling() or os.getpid() != self._process:
            return value
        key = (threading.get_ident(), number)
        if part in _BEGINNING:
            self._open[key] = []
        found = self._open.get(key)
        if found is None:
            return value
        if part not in (CALLED, REACHED) and self.counts[number] < MOST:
            with self.context.pause(), torch.no_grad():
                found.append((part, self._parts(value)))
        if last:
            del self._open[key]
            self.counts[number] += 1
            if self.counts[number] <= MOST:
                self.context.emit("probe", number=number, step=self.context.step, values=found)
        return value

    def _parts(self, value: Any) -> list[Any]:
        found: list[Any] = []
        try:
            for part in self._flat(value, 0):
                found.append(part)
                if len(found) == _PARTS:
                    break
        except Exception as error:
            # An object of the user's that cannot be looked at is no error of the script.
            found.append(["object", type(error).__name__])
        return found

    def _flat(self, value: Any, depth: int) -> Iterator[list[Any]]:
        """The numbers and texts of a value, each with its kind; of what holds none, the type."""
        if isinstance(value, clock.Clock):
            yield ["object", "time"]
        elif isinstance(value, bool) or value is None:
            yield ["constant", str(value)]
        elif isinstance(value, (int, float)):
            yield ["number", value]
        elif isinstance(value, str):
            text = self._text(value)
            yield ["text", text, clock.spans(text)]
        elif isinstance(value, os.PathLike):
            yield ["path", self._text(str(os.fspath(value)))]
        elif isinstance(value, io.IOBase) and isinstance(name := getattr(value, "name", None), str):
            yield ["path", self._text(name)]
        elif type(value) in (torch.Tensor, torch.nn.Parameter):
            if value.layout is torch.strided and value.device.type != "meta":
                yield from _array(value.detach().reshape(-1)[:_LARGEST].cpu().double().numpy(), value.shape)
        elif isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.kind in "biuf":
                yield from _array(np.asarray(value).reshape(-1)[:_LARGEST].astype(np.float64), value.shape)
        elif isinstance(value, (list, tuple, dict)) and depth < 4:
            yield ["constant", f"{type(value).__name__} of {len(value)}"]
            for inner in (
                [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
            ):
                yield from self._flat(inner, depth + 1)
        else:
            yield ["object", type(value).__name__]

    def _text(self, text: str) -> str:
        return (text.replace(self.context.tree, "") if self.context.tree else text)[:_LONGEST]


def _array(values: Any, shape: Sequence[int]) -> Iterator[list[Any]]:
    yield ["constant", "x".join(map(str, shape)) or "scalar"]
    if values.size <= _SHORT:
        yield from (["number", float(value)] for value in values)
        return
    sizes = np.abs(values).sum()
    turning = values * (1 + np.arange(values.size) % 7)
    for name, value in (("sum", values.sum()), ("sum of sizes", sizes), ("sum by place", turning.sum())):
        yield ["sum", float(value), float(sizes), name]


def install(context: Context, rows: Mapping[str, Sequence[Row]]) -> None:
    """Put probes into what is loaded from now on."""
    probes = Probes(context, rows)
    setattr(builtins, PROBE, probes.show)
    context.rewrite = lambda tree, file: insert(tree, rows.get(context.translate(file), ()))
    context.at_end.append(probes.finish)
