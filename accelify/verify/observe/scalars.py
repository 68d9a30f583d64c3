"""What a script logs: every figure that goes to a tracker, a table, a JSON file, a log or a progress bar.

Each is an event of the kind "scalar" with its tag, text, step, place and whether it was logged inside the loop that
took the last batch; "would_log" where the rank evaluated it and shows nothing. What a progress bar came to is an event
of the kind "bar", by the place where the bar was made.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from accelify.verify.observe.clock import Clock, spans
from accelify.verify.observe.context import Context
from accelify.verify.observe.imports import when_imported
from accelify.verify.observe.sinks import SINKS, Argument, Sink

_EVENT_WRITERS = "tensorboard.summary.writer.event_file_writer"
LONGEST = 2000
"""Characters of one value that are compared."""
LEAVES = 200
"""Values of one JSON document or mapping that are compared one by one; the file is compared whole anyway."""


class _Depth(threading.local):
    """How many watched functions the thread is in: one calls another for the same figure."""

    value = 0


class Scalars:
    """Watches what one process logs."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.depth = _Depth()
        self.ended = False

    def install(self) -> None:
        """Watch from now on."""
        for sink in SINKS:
            when_imported(sink.module, functools.partial(self._watch, sink))
        when_imported("csv", self._watch_csv)
        when_imported("json", self._watch_json)
        when_imported("tqdm.std", self._watch_bars)
        logging.FileHandler.emit = self._watched_record(logging.FileHandler.emit)  # type: ignore[method-assign]

    def note(self, kind: str, tag: str, value: Any, step: Any = None, hidden: bool = False) -> None:
        """Write what is logged at the user's line that is running; a mapping name by name."""
        if self.context.paused or self.ended:
            return
        with self.context.pause():
            site, loop = self.context.sites.here(), self.context.sites.in_batch_loop()
            for count, (name, one) in enumerate(_leaves(tag, value)):
                if count >= LEAVES:
                    break
                text = _text(one)
                more: dict[str, Any] = {} if step is None else {"at": _text(step)}
                times = [[0, len(text)]] if isinstance(one, Clock) else spans(text)
                if times:
                    more["times"] = times
                self.context.emit(
                    "would_log" if hidden else "scalar",
                    text=text, tag=name, site=site, step=self.context.step, loop=loop, sink=kind, **more,
                )  # fmt: skip

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        self.depth.value += 1
        try:
            yield
        finally:
            self.depth.value -= 1

    # Libraries of the table -------------------------------------------------------------------------------------

    def _watch(self, sink: Sink, module: ModuleType) -> None:
        owner: Any = module
        *owners, name = sink.path.split(".")
        for part in owners:
            owner = getattr(owner, part, None)
        function = vars(owner).get(name) if owner is not None else None
        if not callable(function):
            return
        watched = self._making(sink, function) if sink.made_by else self._taking(sink, function, bool(owners))
        with contextlib.suppress(AttributeError, TypeError):
            setattr(owner, name, watched)

    def _taking(self, sink: Sink, function: Callable[..., Any], method: bool) -> Callable[..., Any]:
        passes_on = sink.hidden == "*"

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if passes_on or not self.depth.value:
                # What cannot be read here is for the library to judge.
                with contextlib.suppress(Exception):
                    self._take(sink, args[0] if method and args else None, args[int(method) :], kwargs)
            if passes_on:
                return function(*args, **kwargs)
            with self._inside():
                return function(*args, **kwargs)

        return watched

    def _making(self, sink: Sink, function: Callable[..., Any]) -> Callable[..., Any]:
        """For a function whose result, and whose module once it has run, have the function that takes the figures."""

        @functools.wraps(function)
        def made(*args: Any, **kwargs: Any) -> Any:
            with self._inside():
                result = function(*args, **kwargs)
            inner = getattr(result, sink.made_by, None)
            if callable(inner) and not hasattr(inner, "accelify_watched"):
                watched: Any = self._taking(sink, inner, False)
                watched.accelify_watched = True
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(result, sink.made_by, watched)
                    module = sys.modules.get(sink.module)
                    if getattr(module, sink.made_by, None) == inner:
                        setattr(module, sink.made_by, watched)
            return result

        return made

    def _take(self, sink: Sink, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        value = _argument(sink.value, args, kwargs)
        tag = _argument(sink.tag, args, kwargs) if sink.tag else None
        step = _argument(sink.step, args, kwargs) if sink.step else None
        if sink.under:
            tag = getattr(owner, sink.under, None)
        if sink.keywords:
            names = {*sink.value.names, *(sink.step.names if sink.step else ()), "refresh"}
            value = {**(value or {}), **{name: one for name, one in kwargs.items() if name not in names}}
        hidden = sink.hidden == "*" or bool(sink.hidden and getattr(owner, sink.hidden, False))
        self.note(sink.path, "" if tag is None else str(tag), value, step, hidden)

    # Python's standard library ----------------------------------------------------------------------------------

    def _watch_csv(self, module: Any) -> None:
        function, scalars = module.writer, self

        class Writer:
            """A writer of rows that lets each be seen."""

            def __init__(self, writer: Any, hidden: bool) -> None:
                self._writer, self._hidden = writer, hidden

            def __getattr__(self, name: str) -> Any:
                return getattr(self._writer, name)

            def writerow(self, row: Any) -> Any:
                if not isinstance(row, (list, tuple)):
                    row = list(row)
                scalars.note("csv", "row", ",".join(map(_text, row)), hidden=self._hidden)
                return self._writer.writerow(row)

            def writerows(self, rows: Any) -> None:
                for row in rows:
                    self.writerow(row)

        @functools.wraps(function)
        def writer(csvfile: Any, *args: Any, **kwargs: Any) -> Any:
            return Writer(function(csvfile, *args, **kwargs), _goes_nowhere(getattr(csvfile, "name", "")))

        # DictWriter looks it up in its module each time.
        module.writer = writer

    def _watch_json(self, module: Any) -> None:
        function = module.dump

        @functools.wraps(function)
        def dump(obj: Any, fp: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.depth.value:
                self.note("json", "", obj, hidden=_goes_nowhere(getattr(fp, "name", "")))
            with self._inside():
                return function(obj, fp, *args, **kwargs)

        module.dump = dump

    def _watched_record(self, function: Callable[..., None]) -> Callable[..., None]:
        """What goes to a stream is printed, and seen there."""

        def emit(handler: Any, record: Any) -> None:
            with contextlib.suppress(Exception):
                self.note(
                    "logging", record.name, record.getMessage(), hidden=_goes_nowhere(handler.baseFilename)
                )
            function(handler, record)

        return emit

    def _watch_bars(self, module: Any) -> None:
        bar = module.tqdm
        start, update, close = bar.__init__, bar.update, bar.close

        @functools.wraps(start)
        def watched_start(instance: Any, *args: Any, **kwargs: Any) -> None:
            with self.context.pause():
                instance.accelify_made = self.context.sites.here(), self.context.sites.in_batch_loop()
            start(instance, *args, **kwargs)
            instance.accelify_desc = getattr(instance, "desc", "") or ""

        @functools.wraps(update)
        def watched_update(instance: Any, *args: Any, **kwargs: Any) -> Any:
            if not hasattr(instance, "accelify_of_batches"):
                with self.context.pause():
                    instance.accelify_of_batches = self.context.sites.in_batch_loop()
            return update(instance, *args, **kwargs)

        @functools.wraps(close)
        def watched_close(instance: Any) -> None:
            made = getattr(instance, "accelify_made", None)
            if made is not None and not getattr(instance, "disable", True) and not self.ended:
                total, count = instance.total, instance.n
                # One that was left early may not know how far it came.
                whole = total is None or count == total
                text = (
                    f"{instance.accelify_desc} {count}/{total}"
                    if whole
                    else f"{instance.accelify_desc} of {total}"
                )
                # What a loop over batches adds by hand, such as their samples, is of one process's batches.
                loop = made[1] or (not whole and getattr(instance, "accelify_of_batches", False))
                self.context.emit("bar", text=text.strip(), site=made[0], loop=loop, step=self.context.step)
            close(instance)

        bar.__init__, bar.update, bar.close = watched_start, watched_update, watched_close


def _argument(argument: Argument, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for name in argument.names:
        if name in kwargs:
            return kwargs[name]
    if argument.position is not None and argument.position < len(args):
        return args[argument.position]
    return None


def _goes_nowhere(path: object) -> bool:
    """Whether what is written to a file is not there afterwards, as `convert` has it on all but one process."""
    return path == os.devnull


def _leaves(tag: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The figures of a nested value with their names."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(f"{tag}.{key}" if tag else str(key), one)
    elif isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, list, tuple)) for one in value):
        for number, one in enumerate(value):
            yield from _leaves(f"{tag}[{number}]", one)
    else:
        yield tag, value


def _text(value: Any) -> str:
    """A value as text, in full; what is no figure by its type's name."""
    if isinstance(value, Clock):
        return repr(float.__pos__(value))
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return str(value)[:LONGEST]
    if isinstance(value, (list, tuple, set)):
        return f"[{', '.join(map(_text, value))}]"[:LONGEST]
    item, size = getattr(value, "item", None), getattr(value, "size", None)
    if callable(item):
        count = value.numel() if hasattr(value, "numel") else size
        if count == 1:
            return str(item())
        if isinstance(count, int) and count <= LEAVES and hasattr(value, "tolist"):
            return str(value.tolist())
    return type(value).__name__


_watching: list[Scalars] = []


def install(context: Context) -> None:
    """Watch what is logged from now on."""
    scalars = Scalars(context)
    scalars.install()
    _watching.append(scalars)


def finish(context: Context) -> None:
    """Nothing that is closed or flushed after the end is the script's doing.

    A writer of event files has a thread, which would have written by now as much as chance lets it.
    """
    for scalars in _watching:
        scalars.ended = scalars.ended or scalars.context is context
    module = sys.modules.get(_EVENT_WRITERS)
    writers = [one for one in gc.get_objects() if type(one) is module.EventFileWriter] if module else []
    for writer in writers:
        with contextlib.suppress(Exception):  # a closed one
            writer.flush()
