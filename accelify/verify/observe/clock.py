"""Times recognised as times: what a script makes of a clock differs from run to run, wherever it is shown.

Clocks give the user's code a `Clock`, a float whose arithmetic stays a `Clock` and which remembers the texts and values
that were made of it. Where one of these texts is in a printed line, that stretch of the line is a time. A number
that leaves the class (through NumPy, or `"%.1f" % seconds`) is found by its value as far as it shows decimals.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import accelify
from accelify.verify.observe.context import Context
from accelify.verify.observe.imports import when_imported

REMEMBERED = 32
"""Texts and values that were made last; what is older is no longer looked for."""
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_TEXTS = ("strftime", "ctime", "asctime")
_OBSERVERS = os.path.join(os.path.dirname(os.path.realpath(accelify.__file__)), "verify") + os.sep
_DECIMAL = re.compile(r"(?<![\d.])\d+\.(\d+)(?![\d.]|[eE][-+\d])")

_texts: deque[str] = deque(maxlen=REMEMBERED)
_values: deque[float] = deque(maxlen=REMEMBERED)


class Clock(float):
    """A point in time, a duration, or a rate made of one."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return volatile(float.__format__(self, spec))

    def __str__(self) -> str:
        return volatile(float.__repr__(self))

    def __repr__(self) -> str:
        return volatile(float.__repr__(self))

    def __int__(self) -> int:
        return _shown(float.__int__(self))

    def __trunc__(self) -> int:
        return _shown(float.__trunc__(self))

    def __floor__(self) -> int:
        return _shown(float.__floor__(self))

    def __ceil__(self) -> int:
        return _shown(float.__ceil__(self))

    def __round__(self, digits: Any = None) -> Any:
        rounded = float.__round__(self, digits)
        return made(rounded) if isinstance(rounded, float) else _shown(rounded)

    def __divmod__(self, other: Any) -> Any:
        return _remade(float.__divmod__(self, other))

    def __rdivmod__(self, other: Any) -> Any:
        return _remade(float.__rdivmod__(self, other))

    def __reduce_ex__(self, protocol: Any) -> Any:
        # In files and in copies it is a plain number.
        return float, (float.__pos__(self),)


def _operation(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def operation(*operands: Any) -> Any:
        result = plain(*operands)
        return made(result) if type(result) is float else result

    operation.__name__ = name
    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Clock, f"__{_name}__", _operation(f"__{_name}__"))
    setattr(Clock, f"__r{_name}__", _operation(f"__r{_name}__"))
for _name in ("abs", "neg", "pos"):
    setattr(Clock, f"__{_name}__", _operation(f"__{_name}__"))


def made(value: float) -> Clock:
    """A `Clock` of that value, remembered."""
    _values.append(value)
    return Clock(value)


def volatile(text: str) -> str:
    """Remember `text` as one that no other run repeats."""
    _texts.append(text.strip())
    return text


def _shown(number: int) -> int:
    volatile(str(number))
    return number


def _remade(pair: Any) -> Any:
    return tuple(map(made, pair)) if isinstance(pair, tuple) else pair


def spans(text: str) -> list[list[int]]:
    """Where in `text` something is that was made of a clock, as start and end."""
    if not _texts and not _values:
        return []
    found = set()
    for known in set(_texts):
        start = text.find(known) if known else -1
        while start >= 0:
            end = start + len(known)
            if not _goes_on(text, start, end):
                found.add((start, end))
            start = text.find(known, end)
    if _values:
        for number in _DECIMAL.finditer(text):
            digits = len(number.group(1))
            if any(f"{abs(value):.{digits}f}" == number.group() for value in set(_values)):
                found.add(number.span())
    return sorted(map(list, found))


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether the number at either end of the stretch is longer than the stretch."""
    before = text[start - 1] if start else " "
    after = text[end : end + 2] + "  "
    return (text[start].isdigit() and (before.isdigit() or before == ".")) or (
        text[end - 1].isdigit() and (after[0].isdigit() or (after[0] == "." and after[1].isdigit()))
    )


def install(context: Context) -> None:
    """Give the user's code such clocks from now on; libraries go on with plain numbers."""

    def is_the_users() -> bool:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_OBSERVERS):
            frame = frame.f_back
        return context.sites.is_users(frame.f_code.co_filename)

    def clock(function: Callable[[], float]) -> Callable[[], float]:
        def now() -> float:
            moment = function()
            return Clock(moment) if is_the_users() else moment

        now.__name__ = function.__name__
        now.__doc__ = function.__doc__
        return now

    def text_of(function: Callable[..., str]) -> Callable[..., str]:
        def text(*args: Any) -> str:
            return volatile(function(*args)) if is_the_users() else function(*args)

        text.__name__ = function.__name__
        text.__doc__ = function.__doc__
        return text

    for name in _CLOCKS:
        if hasattr(time, name):
            setattr(time, name, clock(getattr(time, name)))
    for name in _TEXTS:
        setattr(time, name, text_of(getattr(time, name)))
    when_imported("timeit", lambda module: setattr(module, "default_timer", time.perf_counter))
    when_imported("yaml.representer", _represented)
    logging.Formatter.format = _watched_format(logging.Formatter.format)  # type: ignore[method-assign]
    logging.Formatter.formatTime = _watched_time(logging.Formatter.formatTime)  # type: ignore[method-assign]


def _represented(module: Any) -> None:
    """PyYAML looks up the exact type of what it writes, and the safe one refuses those that it does not know."""
    for name in ("SafeRepresenter", "Representer"):
        kind = getattr(module, name)
        kind.add_representer(Clock, lambda self, value: self.represent_float(float.__pos__(value)))


def _watched_time(function: Callable[..., str]) -> Callable[..., str]:
    def format_time(self: Any, record: Any, datefmt: Any = None) -> str:
        return volatile(function(self, record, datefmt))

    return format_time


def _watched_format(function: Callable[..., str]) -> Callable[..., str]:
    """Lines of a log can show the place and the process, which are others after conversion."""

    def format_record(self: Any, record: Any) -> str:
        shown = str(getattr(self, "_fmt", ""))
        for name in ("lineno", "process", "thread", "processName", "threadName"):
            if name in shown:
                volatile(str(getattr(record, name, "")))
        for name in ("created", "relativeCreated"):
            if name in shown:
                _values.append(getattr(record, name))
                volatile(str(int(getattr(record, name))))
        if "msecs" in shown:
            volatile(f"{int(record.msecs):03d}")
        return function(self, record)

    return format_record
