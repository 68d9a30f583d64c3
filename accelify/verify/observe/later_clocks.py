"""Clocks that differ between ranks: a name made of the time is another on each, as it can be on real machines.

On one machine two ranks mostly read the same second, and a folder named by it looks like one. So on the ranks after the
first, what the user's files read from the wall clock is later by a minute and a bit a rank. Only calls in the user's
text are changed, `now()` to `__accelify_clock__(now)()`: types, libraries and durations stay what they are.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

CLOCK = "__accelify_clock__"
SECONDS = 61.0
"""How much later each rank is than the one before."""
_NAMES = {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "now", "utcnow", "today"}
_OF_DATES = {"now", "utcnow", "today"}


def install(rank: int) -> None:
    """Let calls that `shift_calls` has changed read the clock of that rank."""
    setattr(builtins, CLOCK, functools.partial(_read, rank * SECONDS, _of_time(rank * SECONDS)))


def shift_calls(tree: ast.Module) -> None:
    """Change the calls in a module that may read the wall clock, in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _NAMES:
            called = node.func
            node.func = ast.Call(ast.Name(CLOCK, ast.Load()), [called], [])
            ast.copy_location(node.func, called)
            ast.copy_location(node.func.func, called)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _read(seconds: float, of_time: dict[Any, Callable[..., Any]], function: Any) -> Any:
    """The same function on a later clock; itself where it is none that reads the clock."""
    if torch.compiler.is_dynamo_compiling():
        return function
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return _later(function, owner, seconds) if function.__name__ in _OF_DATES else function
    try:
        return of_time.get(function, function)
    except TypeError:
        return function


def _later(function: Callable[..., Any], owner: type[datetime.date], seconds: float) -> Callable[..., Any]:
    def later(*args: Any, **kwargs: Any) -> Any:
        if issubclass(owner, datetime.datetime):
            return function(*args, **kwargs) + datetime.timedelta(seconds=seconds)
        return owner.fromtimestamp(time.time() + seconds)

    return later


def _of_time(seconds: float) -> dict[Any, Callable[..., Any]]:
    """Functions of the module `time` as it is now, on a later clock where no moment is passed to them."""

    def from_now(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda moment=None: function(time.time() + seconds if moment is None else moment)

    def of_local_time(function: Callable[..., Any]) -> Callable[..., Any]:
        def shown(*args: Any) -> Any:
            needed = function is time.strftime
            return (
                function(*args)
                if len(args) > needed
                else function(*args, time.localtime(time.time() + seconds))
            )

        return shown

    shifted: dict[Any, Callable[..., Any]] = {
        time.time: lambda: time.time() + seconds,
        time.time_ns: lambda: time.time_ns() + int(seconds * 1e9),
    }
    shifted |= {function: from_now(function) for function in (time.localtime, time.gmtime, time.ctime)}
    return shifted | {function: of_local_time(function) for function in (time.strftime, time.asctime)}
