"""Decisions of the script: every outcome of every test in the user's files, in order, and whether training hangs on it.

The source is instrumented in memory (`instrumented`; on later ranks `later_clocks` too). A run of equal outcomes is one
number; a site with very many runs goes on as a digest. Events "decision", one a site, are written at the end, and every
second where other ranks may be ended together with this one: the last event of a site is the one that counts.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from accelify.verify.observe import later_clocks
from accelify.verify.observe.context import Context
from accelify.verify.observe.instrumented import DECIDED, PASSED, Test, instrument
from accelify.verify.observe.sites import is_library

RUNS = 2_000
"""Runs of equal outcomes that a site writes out; later ones are counted and go into a digest."""
LARGEST = 2_000_000
"""Bytes of source up to which a file is instrumented."""
HANDLED_AT_ONCE = 20
"""How many times an exception handler is written at once on each rank of several."""
_EVERY = 1.0
WRITTEN_EARLY = 200
"""Times that a new outcome of what leaves a loop is written before training goes on."""
_MASK = (1 << 60) - 1
_FLAGS = ("leaves", "trains", "saves", "carries", "by_rank", "ends")


class SiteRecord:
    """The outcomes at one test."""

    __slots__ = ("beyond", "count", "digest", "file", "last", "runs", "test", "trained", "written")

    def __init__(self, file: str, test: Test) -> None:
        self.file = file
        self.test = test
        self.last: bool | None = None
        self.count = 0
        # Signed, so that each number says which outcome it counts.
        self.runs: list[int] = []
        # False and true outcomes that are in no run, and a digest of them in their order.
        self.beyond = [0, 0]
        self.digest = 0
        # Training steps and backward calls while its body ran, its else, and what it leaves or stands by for.
        self.trained = [0, 0, 0]
        self.written = 0

    def turn(self, outcome: bool) -> None:
        """The outcome is another than the last."""
        if len(self.runs) < RUNS:
            self.runs.append(self.count if self.last else -self.count)
        else:
            self.beyond[bool(self.last)] += self.count
            self.digest = (self.digest * 31 + self.count) & _MASK
        self.last = outcome
        self.count = 1

    @property
    def calls(self) -> int:
        return sum(map(abs, self.runs)) + sum(self.beyond) + self.count

    def to_json(self) -> dict[str, Any]:
        """All of it, with the run that has not ended."""
        runs, digest = [run for run in self.runs if run], self.digest
        if len(self.runs) < RUNS:
            runs.append(self.count if self.last else -self.count)
        else:
            digest = (digest * 31 + self.count) & _MASK
        return {
            "kind": self.test.kind,
            "runs": runs,
            "digest": digest,
            "calls": self.calls,
            "yes": sum(run for run in self.runs if run > 0) + self.beyond[1] + self.count * bool(self.last),
            "nth": self.test.nth,
            "flags": [name for name in _FLAGS if getattr(self.test, name)],
            "trained": self.trained,
        }


class Decisions:
    """Records one process: its main thread, where no sample is being loaded."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.sites: list[SiteRecord] = []
        self._main = threading.get_ident()
        self._process = os.getpid()
        self._loading = 0
        self._finished = False
        self._lock = threading.Lock()
        self._enclosing: dict[tuple[CodeType, int], tuple[tuple[SiteRecord, int], ...]] = {}
        self._by_file: dict[str, list[SiteRecord]] = {}
        self._leaving: list[SiteRecord] = []
        self._turns = 0
        self._early = WRITTEN_EARLY if context.world > 1 else 0

    def install(self) -> None:
        """Instrument what is loaded from now on."""
        setattr(builtins, DECIDED, self._decided())
        setattr(builtins, PASSED, self._passed)
        later_clocks.install(self.context.rank)
        loader: Any = importlib.machinery.SourceFileLoader
        loader.get_code = self._watched_get_code(loader.get_code)
        iterator: Any = dataloader._BaseDataLoaderIter
        iterator.__next__ = self._watched_next(iterator.__next__)
        torch.autograd.backward = self._watched_backward(torch.autograd.backward)
        register_optimizer_step_post_hook(lambda *_: self._note_training())
        os.register_at_fork(after_in_child=self._leave)
        if self.context.world > 1:
            threading.Thread(target=self._write_now_and_then, name="accelify-decisions", daemon=True).start()

    def compile(self, source: bytes | str, file: str) -> CodeType:
        """The code of a file of the user's, instrumented; as it is where that cannot be done."""
        if is_library(file) or self._finished:
            return compile(source, file, "exec", dont_inherit=True)
        if len(source) > LARGEST:
            self.context.emit("decisions_left_out", file=self.context.translate(file), bytes=len(source))
            return compile(source, file, "exec", dont_inherit=True)
        found = instrument(source, len(self.sites), file)
        if self.context.rewrite is not None:
            self.context.rewrite(found.tree, file)
        if self.context.rank:
            later_clocks.shift_calls(found.tree)
        code = compile(found.tree, file, "exec", dont_inherit=True)
        records = [SiteRecord(file, test) for test in found.tests]
        self.sites += records
        self._by_file.setdefault(file, []).extend(records)
        self._leaving += [record for record in records if record.test.leaves]
        return code

    def write(self) -> None:
        """Write the sites that have new outcomes."""
        with self._lock:
            for record in self.sites:
                calls = record.calls
                if calls != record.written:
                    record.written = calls
                    site = (self.context.translate(record.file), record.test.line)
                    self.context.emit("decision", site=site, **record.to_json())

    def finish(self) -> None:
        """The last events."""
        if not self._finished and os.getpid() == self._process:
            self.write()
            self._finished = True

    # What runs in the user's code -----------------------------------------------------------------------------------

    def _decided(self) -> Callable[[int, bool], bool]:
        """The function that the user's tests call. It is on the way of everything: no attribute more than needed."""
        sites, main, own, several = self.sites, self._main, threading.get_ident, self.context.world > 1
        # False, but where torch.compile reads this: what it compiles is what is in the file.
        is_compiling = torch.compiler.is_dynamo_compiling

        def decided(number: int, outcome: bool) -> bool:
            if is_compiling():
                return outcome
            if own() == main and not self._loading:
                record = sites[number]
                if outcome is record.last:
                    record.count += 1
                else:
                    record.turn(outcome)
                    if (
                        outcome
                        and several
                        and record.test.kind == "except"
                        and len(record.runs) < HANDLED_AT_ONCE
                    ):
                        # What one rank leaves out after it may end the others before anything else is written.
                        self.write()
            return outcome

        return decided

    def _passed(self, *numbers: int) -> None:
        for number in numbers:
            getattr(builtins, DECIDED)(number, False)

    def _leave(self) -> None:
        """A worker process has been made: what it decides is about samples."""
        self._loading = 1 << 30

    def _note_training(self) -> None:
        """A backward pass or a step: the tests around it guard training."""
        if self._loading or self._finished or threading.get_ident() != self._main:
            return
        if self._early and (turns := sum(len(record.runs) for record in self._leaving)) != self._turns:
            # Ranks that part here may be ended in the next collective, before any of them can say so.
            self._turns = turns
            self._early -= 1
            self.write()
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self._by_file:
                for record, branch in self._around(frame.f_code, frame.f_lineno):
                    record.trained[branch] += 1
            frame = frame.f_back  # type: ignore[assignment]

    def _around(self, code: CodeType, line: int) -> tuple[tuple[SiteRecord, int], ...]:
        key = (code, line)
        found = self._enclosing.get(key)
        if found is None:
            records = self._by_file[code.co_filename]
            found = self._enclosing[key] = tuple(
                (record, branch)
                for record in records
                for branch, (first, last) in enumerate(
                    (record.test.body, record.test.orelse, record.test.scope)
                )
                if first <= line <= last and record.test.line >= code.co_firstlineno
            )
        return found

    # Where it is put in place -----------------------------------------------------------------------------------

    def _watched_get_code(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def get_code(loader: Any, fullname: str) -> Any:
            path = loader.get_filename(fullname)
            if is_library(path) or os.getpid() != self._process:
                return function(loader, fullname)
            # Compiled files in a cache would be those without instruments.
            return self.compile(loader.get_data(path), path)

        return get_code

    def _watched_next(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807 (takes the place of that method)
            self._loading += 1
            try:
                return function(iterator)
            finally:
                self._loading -= 1

        return __next__

    def _watched_backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._note_training()
            return function(*args, **kwargs)

        return backward

    def _write_now_and_then(self) -> None:
        while not self._finished:
            time.sleep(_EVERY)
            if not self._finished:
                self.write()


_installed: list[Decisions] = []


def install(context: Context) -> None:
    """Record what the user's code decides from now on."""
    decisions = Decisions(context)
    decisions.install()
    _installed.append(decisions)


def compile_script(source: bytes, file: str) -> CodeType:
    """The code of the script itself."""
    if _installed:
        return _installed[0].compile(source, file)
    return compile(source, file, "exec", dont_inherit=True)


def finish(context: Context) -> None:
    """Write all outcomes."""
    for decisions in _installed:
        decisions.finish()
