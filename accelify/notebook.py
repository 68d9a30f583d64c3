"""A Jupyter notebook as one script and back: its code cells one after the other, each under a marker comment.

The notebook's text is never written again: only the `source` of a cell that an edit touched is replaced, in the form,
indentation and escaping it had, so that outputs, metadata, Markdown and all other cells stay as they are.
"""

from __future__ import annotations

import bisect
import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelify.cell_names import global_names, name_of_new_function
from accelify.findings import Finding, Safety, Severity
from accelify.magics import Mask, is_automagic, parses
from accelify.source import Source, SourceError, parse

if TYPE_CHECKING:
    from accelify.conversion import Conversion

CODE, NAME = "ACC501", "notebook-launcher"
UNREAD, UNREAD_NAME = "ACC502", "unread-cell"
SUFFIX = ".ipynb"

# The comment in front of each cell: with more blanks where a cell has such a comment itself.
_MARKER = "# %% cell"
_WHITE = re.compile(r"[ \t\n\r]*")
_PIECES = re.compile(r"[^\n]*\n|[^\n]+")
_OLD_ESCAPE = re.compile(r"\\u(?:00[89a-fA-F]|0[1-9a-fA-F]|[1-9a-fA-F])")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Cell:
    """One code cell.

    `number` counts all cells of the notebook from 1. `start` and `end` are the place of its source in the notebook's
    text, `text` is the source and `masked` the same with IPython's syntax hidden, line for line. `unread` is the line
    at which a cell that is no Python, and so hidden as a whole, goes wrong; 0 for all others.
    """

    number: int
    start: int
    end: int
    text: str
    masked: str = ""
    unread: int = 0


@dataclass(frozen=True)
class NotebookSource(Source):
    """A notebook whose `text` is the script that its code cells make.

    `encode(text)` gives the notebook's bytes with the cells of `text`. Findings of the script are put into their cells
    by `place`.
    """

    raw: str = ""
    cells: tuple[Cell, ...] = ()
    mask: Mask | None = None
    marker: str = ""

    @classmethod
    def from_notebook(cls, data: bytes, path: Path | None = None) -> NotebookSource:
        """Read a notebook of format 3 or 4.

        Raises SourceError where `data` is no notebook, has no Python code, or a cell that trains is no Python.
        """
        name = str(path) if path is not None else "<stdin>"
        bom = data.startswith(codecs.BOM_UTF8)
        body = data[len(codecs.BOM_UTF8) :] if bom else data
        raw = _text(body, name, path)
        cells = list(_code_cells(raw, name, path))
        if not any(cell.text.strip() for cell in cells):
            raise SourceError(f"{name} has no code: there is nothing to convert.", path)
        mask = Mask([cell.text for cell in cells])
        cells = [_read(cell, mask, name, path) for cell in cells]
        marker = _MARKER
        while any(re.search(rf"^{marker} \d", cell.masked, re.M) for cell in cells):
            marker += " "
        ends = re.findall(r"\r\n|\r|\n", "".join(cell.text for cell in cells))
        newline = max(sorted(set(ends)), key=ends.count, default="\n")
        text = "".join(f"{marker} {cell.number}{newline}{cell.masked}{newline}" for cell in cells)
        return cls(path, text, "utf-8", bom, raw, tuple(cells), mask, marker)

    def encode(self, text: str | None = None) -> bytes:
        """The notebook with the cells of `text` (default: as it is), byte for byte where a cell did not change.

        Raises SourceError where `text` is not made of this notebook's cells and magics.
        """
        raw = self.raw
        if text is not None and text != self.text:
            if problem := self.problem(text):
                raise SourceError(f"{self._name}: {problem}.", self.path)
            pieces = self._split(text)
            assert pieces is not None
            for cell, new in reversed(list(zip(self.cells, pieces, strict=True))):
                if new != cell.masked:
                    raw = raw[: cell.start] + self._source_of(cell, self._shown(new)) + raw[cell.end :]
        data = raw.encode("utf-8")
        return codecs.BOM_UTF8 + data if self.bom else data

    def problem(self, text: str) -> str:
        """Why `text` cannot be put back into the cells; empty where it can."""
        pieces = self._split(text)
        if pieces is None:
            return "the edits reach over the borders of cells"
        assert self.mask is not None
        for cell, new in zip(self.cells, pieces, strict=True):
            if self.mask.numbers(new) != self.mask.numbers(cell.masked):
                return f"an edit takes a magic out of cell {cell.number}"
        return ""

    def parts(self, text: str) -> list[tuple[str, str, str]]:
        """Name, old and new text of each cell that differs in `text`."""
        return [
            (f"{self._name}:cell {cell.number}", cell.text, self._shown(new))
            for cell, new in zip(self.cells, self._split(text) or (), strict=False)
            if new != cell.masked
        ]

    def place(self, finding: Finding) -> Finding:
        """A finding of the script at its place in the notebook: the number of the cell and the line in it."""
        if finding.path.endswith(".py"):
            return finding  # of a module that the notebook imports
        index = bisect.bisect_right(self._starts, finding.line) - 1
        if finding.cell or index < 0:
            return finding
        start, cell = self._starts[index], self.cells[index]
        line = max(finding.line - start, 1)
        last = cell.masked.count("\n") + 1
        end = min(max(finding.end_line - start, line), last) if finding.end_line else 0
        assert self.mask is not None
        shift = self.mask.shift(self.lines[finding.line - 1]) if finding.line <= len(self.lines) else 0
        end_column = finding.end_column + (shift if end == line and finding.end_column else 0)
        return replace(
            finding,
            cell=cell.number,
            line=line,
            column=finding.column + shift,
            end_line=end,
            end_column=end_column,
        )

    def finished(self, conversion: Conversion, runtime: str) -> Conversion:
        """A conversion of the notebook with the hint how to start it on several processes.

        Where the edits cannot be put back into the cells, the notebook is left as it was.
        """
        return _finished(self, conversion, runtime)

    @property
    def _name(self) -> str:
        return str(self.path) if self.path is not None else "<stdin>"

    @cached_property
    def _starts(self) -> list[int]:
        """The line of the script at which each cell's marker is."""
        return [line for line, _ in _marked(self.lines, self.marker)]

    def _split(self, text: str) -> list[str] | None:
        """The masked cells of `text`, None where they are not those of this notebook."""
        first = re.match(rf"{re.escape(self.marker)} \d+(\r\n|\r|\n)", self.text)
        assert first is not None
        # The line end that was put there, and no other: a cell may begin or end with half of one.
        newline = first[1]
        pieces = re.split(rf"^{re.escape(self.marker)} (\d+){newline}", text, flags=re.M)
        if pieces[0] or [int(number) for number in pieces[1::2]] != [cell.number for cell in self.cells]:
            return None
        return [piece.removesuffix(newline) for piece in pieces[2::2]]

    def _shown(self, masked: str) -> str:
        assert self.mask is not None
        return self.mask.show(masked)

    def _source_of(self, cell: Cell, text: str) -> str:
        """The JSON of a cell's new source, written as the old one was."""
        old = self.raw[cell.start : cell.end]
        if not old.startswith("["):
            return self._json(text)
        spans = list(_items(self.raw, cell.start))
        lines = _PIECES.findall(text)
        if not lines:
            return "[]"
        written = {_decode(self.raw, start)[0]: self.raw[start:end] for start, end in spans}
        head = self.raw[cell.start + 1 : spans[0][0]]
        tail = self.raw[spans[-1][1] : cell.end - 1]
        if len(spans) > 1:
            between = self.raw[spans[0][1] : spans[1][0]]
        else:
            between = f",{head}" if head else ", "
        # A line that stays is copied, so that its escapes stay too.
        return "[" + head + between.join(written.get(line) or self._json(line) for line in lines) + tail + "]"

    def _json(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self._escapes)

    @cached_property
    def _escapes(self) -> bool:
        """Whether this notebook writes letters beyond ASCII as escapes."""
        return self.raw.isascii() and bool(_OLD_ESCAPE.search(self.raw))


def is_notebook(data: bytes, path: Path | None) -> bool:
    """Whether a file is a notebook: by its name, or by its beginning where it has none."""
    if path is not None:
        return path.suffix == SUFFIX
    head = data.removeprefix(codecs.BOM_UTF8).lstrip()
    return head.startswith(b"{") and b'"nbformat"' in data and (b'"cells"' in data or b'"worksheets"' in data)


def _finished(source: NotebookSource, conversion: Conversion, runtime: str) -> Conversion:
    if not conversion.changed:
        if conversion.status == "refused":
            left = "a model that it makes is not seen; finish it, then convert again"
            conversion.remaining = sorted([*conversion.remaining, *_unread(source, left)])
        return conversion
    if problem := source.problem(conversion.new_text):
        conversion.status, conversion.reason = "refused", f"the core edits cannot be made: {problem}"
        conversion.applied, conversion.new_text = [], source.text
        message, effort = f"left alone: {problem}", 30
        place = conversion.remaining[0].line if conversion.remaining else 2
        conversion.remaining = [
            Finding(source._name, place, 1, "ACC008", "left-alone", message, severity=Severity.ERROR,
                    safety=Safety.MANUAL, effort=effort, fixable=False)
        ]  # fmt: skip
        return conversion
    first = min((finding.line for finding in conversion.applied if finding.code == "ACC102"), default=2)
    package = "accelify.runtime" if runtime == "accelify" else runtime
    called = name_of_new_function(source._split(conversion.new_text) or [])
    message = (
        "the notebook runs on one process as it stands; for several put the cells from here on into a function, "
        f"say `{called}()`, {_beginning(source, conversion.new_text, first)}and call `notebook_launcher({called})` "
        f"(from {package} import notebook_launcher)"
    )
    hint = Finding(source._name, first, 1, CODE, NAME, message, severity=Severity.INFO, safety=Safety.MANUAL,
                   effort=5, fixable=False)  # fmt: skip
    left = "models, optimizers and loaders that it makes are not prepared; finish it, then convert the original again"
    conversion.remaining = sorted([*conversion.remaining, *_unread(source, left), hint])
    return conversion


def in_cell(script: str, line: int) -> tuple[int, int] | None:
    """The number of the cell, and the line in it, of a line of the script that a notebook's cells make.

    Args:
        script: such a script, as it is or converted.
        line: from 1.

    Returns:
        None for a line of any other text.
    """
    first = re.match(rf"({_MARKER} *) \d", script)
    marked = _marked(script.splitlines()[: line - 1], first[1]) if first is not None else []
    return next(((cell, line - start) for start, cell in reversed(marked)), None)


def _marked(lines: Sequence[str], marker: str) -> list[tuple[int, int]]:
    """The lines with a marker, from 1, each with the number of its cell."""
    found = re.compile(rf"{re.escape(marker)} (\d+)\s*")
    return [(at, int(match[1])) for at, line in enumerate(lines, 1) if (match := found.fullmatch(line))]


def _beginning(source: NotebookSource, text: str, line: int) -> str:
    """How the function begins into which the cells of a conversion's text go, from that of a line on."""
    cells, index = source._split(text) or [], max(bisect.bisect_right(source._starts, line) - 1, 0)
    names = global_names(cells[:index], cells[index:])
    if not names:
        return ""
    return f"let it begin with `global {', '.join(names)}`, which the other cells share, "


def _unread(source: NotebookSource, consequence: str) -> list[Finding]:
    """A finding for each cell that is no Python."""
    return [
        Finding(
            source._name, start + cell.unread, 1, UNREAD, UNREAD_NAME,
            f"cell {cell.number} is not valid Python and was left out: {consequence}",
            safety=Safety.MANUAL, effort=10, fixable=False,
        )
        for start, cell in zip(source._starts, source.cells, strict=True)
        if cell.unread
    ]  # fmt: skip


def _text(body: bytes, name: str, path: Path | None) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        sentence = (
            f"{name}, line {line}: not valid UTF-8, which a notebook has to be: save it again with Jupyter."
        )
        raise SourceError(sentence, path, line) from None


def _code_cells(raw: str, name: str, path: Path | None) -> Iterator[Cell]:
    try:
        content = json.loads(raw)
    except json.JSONDecodeError as error:
        sentence = f"{name}, line {error.lineno}: not a notebook, its JSON is broken ({error.msg})"
        raise SourceError(f"{sentence}: fix it or restore an older version.", path, error.lineno) from None
    except RecursionError:
        raise SourceError(f"{name} is no notebook: its JSON is nested too deeply.", path) from None
    if not isinstance(content, dict) or not ("cells" in content or "worksheets" in content):
        raise SourceError(
            f"{name} is JSON but no notebook (it has no cells): name a notebook or a script.", path
        )
    if not isinstance(content.get("cells", []), list):
        raise SourceError(
            f"{name} is no notebook, as its cells are no list: name a notebook or a script.", path
        )
    if (language := _language(content)) not in ("python", "ipython"):
        raise SourceError(f"{name} holds {language}, not Python: only Python can be converted.", path)
    top = _members(raw, _skip(raw, 0))
    places = [top["cells"]] if "cells" in top else []
    if not places:
        places = [
            members["cells"]
            for start, _ in _items(raw, top["worksheets"][0])
            if raw[start] == "{" and "cells" in (members := _members(raw, start))
        ]
    number = 0
    for start, _ in places:
        for cell, _ in _items(raw, start):
            number += 1
            members = _members(raw, cell) if raw[cell] == "{" else {}
            if "cell_type" not in members or _decode(raw, members["cell_type"][0])[0] != "code":
                continue
            place = members.get("source") or members.get("input")
            source = _decode(raw, place[0])[0] if place is not None else None
            if isinstance(source, list) and all(isinstance(line, str) for line in source):
                source = "".join(source)
            if place is not None and isinstance(source, str):
                yield Cell(number, *place, source)


def _language(content: dict[str, Any]) -> str:
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    info, kernel = metadata.get("language_info"), metadata.get("kernelspec")
    for known in (
        info.get("name") if isinstance(info, dict) else None,
        kernel.get("language") if isinstance(kernel, dict) else None,
    ):
        if isinstance(known, str) and known:
            return known.lower()
    return "python"


def _read(cell: Cell, mask: Mask, name: str, path: Path | None) -> Cell:
    if parses(cell.text + "\n"):
        return replace(cell, masked=cell.text)
    if is_automagic(cell.text):
        return replace(cell, masked=mask.hide_all(cell.text))
    contained = len(mask.hidden)
    masked = mask.hide_magics(cell.text)
    try:
        parse(masked + "\n", Path(f"{name}, cell {cell.number}"))
    except SourceError as error:
        # A cell that is only unfinished or a note is left out; training code that does not run has to be reported.
        sentence = str(error)
        if "this is Python 2" in sentence or "`async`" in sentence or "backward" in masked:
            raise SourceError(sentence, path, error.line) from None
        del mask.hidden[contained:]
        return replace(cell, masked=mask.hide_all(cell.text), unread=error.line or 1)
    return replace(cell, masked=masked)


def _skip(raw: str, at: int) -> int:
    match = _WHITE.match(raw, at)
    return match.end() if match else at


def _members(raw: str, start: int) -> dict[str, tuple[int, int]]:
    """Where the values of the JSON object at `start` are, by key."""
    found: dict[str, tuple[int, int]] = {}
    at = _skip(raw, start + 1)
    while raw[at] != "}":
        key, at = _decode(raw, at)
        at = _skip(raw, _skip(raw, at) + 1)
        _, end = _decode(raw, at)
        found[key] = at, end
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return found


def _items(raw: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the items of the JSON array at `start` are; none where it is no array."""
    if raw[start] != "[":
        return
    at = _skip(raw, start + 1)
    while raw[at] != "]":
        _, end = _decode(raw, at)
        yield at, end
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
