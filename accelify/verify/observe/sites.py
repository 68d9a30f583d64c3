"""Which line of the user's code is running: the statement that a print, a file or a batch belongs to."""

from __future__ import annotations

import ast
import functools
import os
import sys
import sysconfig
import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

import accelify

Site = tuple[str, int]
"""Real path of a file and the first line of the innermost statement there, from 1."""

_STARTED_BY = "accelify_started_by"
_LIBRARIES = tuple(
    dict.fromkeys(
        os.path.realpath(path) + os.sep
        for path in (
            os.path.dirname(accelify.__file__),
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        )
    )
)


@dataclass
class _Layout:
    """The statements of one file: where each begins, and which loops there are."""

    starts: list[int] = field(default_factory=list)
    """First lines of stretches that belong to one statement, ascending."""
    owners: list[int] = field(default_factory=list)
    """The first line of the statement that the stretch belongs to."""
    loops: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First line of a loop to the first and last line of its body."""
    fetching: dict[int, int] = field(default_factory=dict)
    """First line of a statement that calls `next` to the first line of the innermost loop around it."""
    around: dict[int, int] = field(default_factory=dict)
    """First line of a statement in a loop to the first line of the innermost loop around it, in the same function."""

    def statement(self, line: int) -> int:
        position = bisect_right(self.starts, line) - 1
        return self.owners[position] if position >= 0 else line


def is_library(path: str) -> bool:
    """Whether a code object's file belongs to Python, an installed package or accelify, not to the user."""
    return path.startswith("<") or path.startswith(_LIBRARIES) or "site-packages" in path


class Sites:
    """Answers for one process. Files are read and parsed when they are first asked for.

    Args:
        tree: a folder in which the user's files are at the same paths as from the root; it is left out of the answers.
    """

    def __init__(self, tree: str = "") -> None:
        self.tree = tree
        self._layouts: dict[str, _Layout] = {}
        self._is_library: dict[str, bool] = {}
        self._loader_loops: set[Site] = set()
        self._last_loops: set[Site] = set()
        self.shares: set[Site] = set()
        """Statements that show figures of the main process's share of the batches, as `convert` announces."""

    def install(self) -> None:
        """Remember with each thread that starts from now on which statement started it."""
        kind: Any = threading.Thread
        start = kind.start

        @functools.wraps(start)
        def noting(thread: threading.Thread) -> None:
            thread.__dict__[_STARTED_BY] = self.here()
            start(thread)

        kind.start = noting

    def here(self) -> Site | None:
        """The statement of the user's code that is running: of the innermost frame that is the user's."""
        frame = self._user_frame(sys._getframe(1))
        return None if frame is None else self.of(frame)

    def starter(self) -> Site | None:
        """The statement of the user's code that started this thread; None in the main thread."""
        site: Site | None = threading.current_thread().__dict__.get(_STARTED_BY)
        return site

    def note_batch(self) -> None:
        """Called where a batch is taken from a loader: the loop that runs is one over a loader from now on."""
        frame = self._user_frame(sys._getframe(1))
        self._last_loops = set()
        while frame is not None:
            file, line = self._site(frame)
            layout = self._layout(file)
            if line in layout.loops:
                self._last_loops.add((file, line))
            elif line in layout.fetching:
                self._last_loops.add((file, layout.fetching[line]))
            # A generator that yields batches has a loop around it that takes them.
            generates = frame.f_code.co_flags & CO_GENERATOR
            frame = self._user_frame(frame.f_back) if generates else None
        self._loader_loops |= self._last_loops

    def note_step(self) -> None:
        """Called where a step of training is made: the innermost loop around it goes over batches, loader or not."""
        frame = self._user_frame(sys._getframe(1))
        while frame is not None:
            file, line = self._site(frame)
            loop = self._layout(file).around.get(line)
            if loop is not None:
                self._loader_loops.add((file, loop))
                self._last_loops.add((file, loop))
                return
            frame = self._user_frame(frame.f_back)

    def in_loader_loop(self) -> bool:
        """Whether some frame of the user's runs the body of a loop over a loader."""
        return self._in_body_of(self._loader_loops, self._user_frame(sys._getframe(1)))

    def in_batch_loop(self) -> bool:
        """Whether some frame of the user's runs the body of the loop that took the last batch of all.

        After an evaluation inside a training loop it is false: what is shown then is no single batch's, unless it is
        announced to be of batches.
        """
        frame = self._user_frame(sys._getframe(1))
        return (frame is not None and self.of(frame) in self.shares) or self._in_body_of(
            self._last_loops, frame
        )

    def _in_body_of(self, loops: set[Site], frame: FrameType | None) -> bool:
        while loops and frame is not None:
            file = frame.f_code.co_filename
            for looped, line in loops:
                if looped == file:
                    first, last = self._layout(file).loops[line]
                    if first <= frame.f_lineno <= last:
                        return True
            frame = self._user_frame(frame.f_back)
        return False

    def is_users(self, file: str) -> bool:
        """Whether a code object's file is the user's."""
        known = self._is_library.get(file)
        if known is None:
            known = self._is_library[file] = is_library(file)
        return not known

    def of(self, frame: FrameType) -> Site:
        """The statement that a frame of the user's runs."""
        file, line = self._site(frame)
        return file.removeprefix(self.tree), line

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        while frame is not None:
            if self.is_users(frame.f_code.co_filename):
                return frame
            frame = frame.f_back
        return None

    def _site(self, frame: FrameType) -> Site:
        file = frame.f_code.co_filename
        return file, self._layout(file).statement(frame.f_lineno)

    def _layout(self, file: str) -> _Layout:
        layout = self._layouts.get(file)
        if layout is None:
            # Reading a file is an event too for whoever watches; an empty layout takes its place while it is read.
            self._layouts[file] = _Layout()
            layout = self._layouts[file] = read_layout(file)
        return layout


def read_layout(file: str) -> _Layout:
    """The statements of a file; an empty layout where it cannot be read or parsed."""
    try:
        with open(file, "rb") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return _Layout()
    layout = _Layout()
    marks: dict[int, int] = {}

    def visit(node: ast.AST, owner: int, loop: int) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                visit(child, owner, loop)
                continue
            if isinstance(child, ast.match_case):
                visit(child, owner, loop)
                continue
            first = child.lineno
            marks[first] = first
            if loop:
                layout.around[first] = loop
            inner = loop
            if isinstance(child, (ast.For, ast.AsyncFor, ast.While)):
                layout.loops[first] = (child.body[0].lineno, child.body[-1].end_lineno or first)
                inner = first
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = 0
            elif loop and not hasattr(child, "body") and any(map(_fetches, ast.walk(child))):
                layout.fetching[first] = loop
            visit(child, first, inner)
            after = (child.end_lineno or first) + 1
            marks.setdefault(after, owner)

    visit(tree, 1, 0)
    layout.starts = sorted(marks)
    layout.owners = [marks[line] for line in layout.starts]
    return layout


def _fetches(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return name in ("next", "__next__")
