"""State of a library's module, such as the current picture: what is drawn goes into it, and others see it where it is
saved or shown.

An attribute of a library that returns the type of what a function has started is that: `wandb.run`, None before
`wandb.init` is called.

A row of a function, of which `self` is no argument, speaks of that state: `plt.plot(x)` writes it (`mutates=self`),
`plt.figure()` begins it anew (`overwrites=self`), `plt.savefig(path)` shows it (`content=self`). What the library's
objects do goes into it as well, as `ax.plot(x)` does into what `fig.savefig` writes.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.domains.replacing import replace
from accelify.heap.builtin_calls import container_method
from accelify.heap.containers import array_of, put
from accelify.heap.values import (
    NONE,
    ONCE,
    UNSET,
    Container,
    Function,
    Instance,
    Library,
    Ref,
    Value,
    constant,
)
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# The type of what the script has put in the place of a library's function.
REPLACED = "#replaced"
# Of loggers: what each line begins with, the lowest level that was asked for, and that something sets them up.
_LABEL, _LEVEL, _SET_UP = "#label", "#level", "#set up"
# Of one logger: its name.
_NAME = "#name"
# Where nothing sets them up, loggers write warnings and worse.
MAIN_LOGS = logging.INFO + 1
# Where each process writes to a file of its rank, what they write meets nowhere.
_RANK_FILES = logging.CRITICAL + 1
# What sets them up in ways of its own, as the frame around a script or by a name that says so.
_FRAMES = frozenset({"absl.app.run", "hydra.main"})
# Loggers of OpenMMLab, which write errors alone on other processes than the main one.
_ONE_LOGS = frozenset({"mmcv.utils.get_logger", "mmcv.utils.logging.get_logger", "mmcv.get_logger"})
_LOGS = re.compile(
    r"log(?!in|ical|it|sumexp|softmax|aritm|arithm|space|[0-9]|_?prob|_softmax|_sum|_loss)", re.IGNORECASE
)
LEVELS = {**logging.getLevelNamesMapping(), "EXCEPTION": logging.ERROR}
# Those that print by themselves, or are what is printed with.
_WITHOUT_PRINT = frozenset({"builtins", "logging", "sys", "traceback", "warnings"})
_SHOWING = frozenset({"file.write", "figure.show"})


class LibraryState:
    """The state of each library that has one.

    Args:
        engine: the interpreter.
    """

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self._states: dict[str, Container] = {}
        # By its type, what was started last.
        self._started = Container("dict", engine.run.store)
        self._started.serial = 0
        # What the script put in the place of a library's.
        self._replaced = Container("dict", engine.run.store)
        self._replaced.serial = 0

    def replace(self, name: str, value: Value) -> None:
        """Note what the script puts in the place of a function of a library's: `builtins.print = quiet`."""
        functions = value.of(Function)
        silent = name == "sys.stdout" or (functions and all(ref.does_nothing for ref in functions))
        if silent and any(guard.kind == "others" for guard in self.engine.run.guards):
            # The main process keeps it.
            name = "builtins.print" if name == "sys.stdout" else name
            self.engine.run.store.set(self._replaced, name, Value(refs=(Library(name),), type=ONCE))
        elif functions or value.type == ONCE:
            self.engine.run.store.set(
                self._replaced, name, Value(refs=value.refs, type=value.type or REPLACED)
            )

    def current(self, name: str) -> Value | None:
        """What an attribute of a library is that a function has started, or that the script has replaced; None where
        that is not known."""
        if name in self._replaced.fields:
            return self.engine.run.read(self._replaced, name)
        row = self.engine.run.knowledge.row(name)
        asks = row is not None and row.transfer == "same" and row.returns
        return self.engine.run.read(self._started, asks) if asks else None

    def printing(self, row: Row) -> Value | None:
        """What a library prints with, where the script has put something in the place of `print`."""
        known = row.name.partition(".")[0] in _WITHOUT_PRINT
        put = None if known or not self.engine.run.checks else self.current("builtins.print")
        return put if put is not None and (put.of(Function) or put.type == ONCE) else None

    def keep(self, row: Row, args: Sequence[Value], result: Value) -> None:
        """Note what a call has started, or by which name a logger is asked for."""
        if row.name == "logging.getLogger" and self.engine.run.checks:
            for ref in result.of(Instance):
                self.engine.run.store.set(ref, _NAME, args[0].plain() if args else None)
        if row.effect == "tracker.start" and row.returns and result.refs:
            self._started.fields.setdefault(row.returns, NONE)
            self.engine.run.store.set(self._started, row.returns, result.plain())

    def set_up(self, name: str, args: Sequence[Value], keywords: Mapping[str, Value]) -> None:
        """Note what a call of `name` makes loggers write with each line, and from which level on."""
        run, first = self.engine.run, args[0] if args else None
        if name in ("logging.basicConfig", "logging.Formatter"):
            label = keywords.get("format", keywords.get("fmt", first))
            if label is not None and not array_of(label).is_uniform:
                run.store.set(self._replaced, _LABEL, label)
        if name in ("logging.basicConfig", "setLevel"):
            asked = keywords.get("level", first)
            words = [ref.name.rpartition(".")[2] for ref in asked.of(Library)] if asked is not None else []
            levels = [LEVELS.get(word, 0) for word in words] or [logging.WARNING if asked is None else 0]
            known = run.read(self._replaced, _LEVEL)
            before = known.const if known is not None else logging.WARNING
            lowest = min(*levels, before) if isinstance(before, int) else 0
            run.store.set(self._replaced, _LEVEL, constant(lowest))
            if name == "logging.basicConfig":
                run.store.set(self._replaced, _SET_UP, constant(True))
        elif name == "addHandler":
            self._handled(first)
        elif name in _ONE_LOGS and run.grouped and run.logs_once == 0:
            run.logs_once = logging.ERROR - 1
            run.store.set(self._replaced, _SET_UP, constant(True))
        elif self._may_set_up(name):
            run.store.set(self._replaced, _LEVEL, constant(0))

    def set_level(self, logger: Value, level: Value) -> None:
        """Note from which level on a package writes that sets its own logger up, of which its other loggers are parts:
        `logging.getLogger(__name__.split(".")[0]).setLevel(logging.WARNING)`."""
        run, package = self.engine.run, self._package()
        names = [run.read(ref, _NAME) for ref in logger.of(Instance)]
        own = [name for name in names if name is not None and (name.const in (UNSET, package))]
        words = [ref.name.rpartition(".")[2] for ref in level.of(Library)]
        if package and own and words:
            # Of several that an environment may choose, it is Python's own where nobody does.
            levels = {LEVELS.get(word, 0) for word in words}
            known = logging.WARNING if logging.WARNING in levels else min(levels)
            run.store.set(self._replaced, f"{_LEVEL} {package}", constant(known))

    def _package(self) -> str:
        """The package that what is gone through is in, "" for the script and modules beside it."""
        module = self.engine.run.module
        root, dot, _ = module.name.partition(".")
        return root if dot or module.path.endswith("__init__.py") else ""

    def _handled(self, handler: Value | None) -> None:
        """Note which processes write where, by a handler that they get."""
        run = self.engine.run
        run.depends()
        is_of_main = any(guard.kind == "main" for guard in run.guards)
        is_of_each = handler is not None and not array_of(handler).is_uniform
        run.store.set(self._replaced, _SET_UP, constant(True))
        by_handlers = run.logs_once in (0, MAIN_LOGS, _RANK_FILES)
        if is_of_main:
            run.logs_once = run.logs_once or MAIN_LOGS
        elif by_handlers:
            run.logs_once = _RANK_FILES if is_of_each else -1

    def _may_set_up(self, name: str) -> bool:
        """Whether a library's function may set loggers up by itself."""
        root, _, last = name.rpartition(".")
        if root == "logging" and last not in ("dictConfig", "fileConfig"):
            return False
        known = self.engine.run.knowledge.row(name)
        return name in _FRAMES or (known is None and bool(_LOGS.search(last)))

    def label(self) -> Value | None:
        """What loggers write with each line that differs between processes, None where nothing does."""
        return self.engine.run.read(self._replaced, _LABEL)

    def is_heard(self, row: Row) -> bool:
        """Whether what a logger writes may be at a level from which on it is written."""
        level = LEVELS.get(row.name.rpartition(".")[2].upper(), logging.CRITICAL)
        run = self.engine.run
        lowest, set_up = run.read(self._replaced, _LEVEL), run.read(self._replaced, _SET_UP)
        of_package = run.read(self._replaced, f"{_LEVEL} {self._package()}") if run.checks else None
        if of_package is not None:
            lowest = set_up = of_package
        asked = lowest.const if lowest is not None and set_up is not None else None
        return not (row.name.startswith("logging.") and isinstance(asked, int) and level < asked)

    def is_set_up(self) -> bool:
        """Whether anything may have set loggers up, which write warnings and worse where nothing does."""
        read = self.engine.run.read
        return read(self._replaced, _LEVEL) is not None or read(self._replaced, _SET_UP) is not None

    def _of(self, row: Row, receiver: Value | None) -> Container | None:
        root = (row.name if receiver is None else receiver.type).partition(".")[0]
        columns = (*row.mutates, *row.overwrites, *row.content)
        if receiver is None and root not in self._states and any(one.receiver for one in columns):
            made = Container("list", self.engine.run.store)
            made.serial = 0  # It is there from the beginning, wherever the library is called first.
            self._states[root] = made
        return self._states.get(root)

    def shown(self, row: Row, receiver: Value | None) -> list[Value]:
        """What a call shows or saves of it.

        Args:
            row: the function.
            receiver: the object of which it is a method, None of a function.
        """
        state = self._of(row, receiver)
        is_shown = any(one.receiver for one in row.content) or (
            receiver is not None and row.effect in _SHOWING
        )
        return [Value(refs=(state,), type="list")] if state is not None and is_shown else []

    def note(
        self,
        row: Row,
        receiver: Value | None,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
    ) -> None:
        """Note what a call writes into it, or that it begins anew.

        Args:
            row: the function.
            receiver: the object of which it is a method, None of a function.
            args, keywords: what it is given.
            node: the call.
        """
        state = self._of(row, receiver)
        if state is None:
            return
        if any(one.receiver for one in row.overwrites):
            container_method(self.engine, Value(refs=(state,)), state, "clear", [], {}, node)
        elif any(one.receiver for one in row.mutates):
            run, given = self.engine.run, [*args, *keywords.values()]
            place = function((array_of(value) for value in given), rowwise=True)
            if not place.is_same:
                put(run, state, Value(place, run.reason(node, f"`{run.segment(node)}`", *given)))


def redirected(engine: Interpreter, manager: Value, node: ast.expr, scope: Ref, met: int) -> None:
    """What was printed within `with redirect_stdout(file):` is written to the file.

    Args:
        engine: the interpreter.
        manager: what the statement stands under.
        node: where that is made.
        scope: the variables there.
        met: how many events there were before its body.
    """
    if not any(ref.type == "contextlib.redirect_stdout" for ref in manager.of(Instance)):
        return
    asked = node.args[0] if isinstance(node, ast.Call) and node.args else None
    into = engine.evaluate(asked, scope) if isinstance(asked, ast.Name) else NONE
    if any(ref.kind == "file" for ref in into.of(Instance)):
        for number, event in enumerate(engine.run.events[met:], met):
            if event.kind == "terminal.write":
                engine.run.events[number] = replace(event, kind="file.write", path=into)
