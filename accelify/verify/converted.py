"""The copy that a verification holds against the original: what the converter would write, without writing it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.findings import Finding, Severity
from accelify.obsolete_keywords import modernised
from accelify.rule_codes import published
from accelify.verify.lines import LineMap

if TYPE_CHECKING:
    from accelify.conversion import Conversion


# Findings of an order of samples that is another one than the original's.
_ORDER = frozenset({"ACC601", "ACC602"})


@dataclass(frozen=True)
class Converted:
    """A copy to hold against the original.

    `files` are the original paths and the bytes that take their place. `refused` is the reason where there is no
    copy because the converter refused, `unchanged` the one where there was nothing to convert. `remaining` are
    places that still need a person, each as one line, `order` those that say that samples come in another order.
    `written` has for a copy that stands in a file already that file, by the path that it takes the place of.
    `modernised` are those of the originals that Python does not parse any more, with `async=` under today's name:
    it is these that run as the original. `versions` names the two scripts for a reader, the original first.
    """

    files: dict[Path, bytes] = field(default_factory=dict)
    refused: str = ""
    unchanged: str = ""
    remaining: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    originals: dict[Path, bytes] = field(default_factory=dict)
    modernised: bool = False
    written: dict[Path, Path] = field(default_factory=dict)
    conversions: tuple[Conversion, ...] = ()
    versions: tuple[str, str] | None = None

    def texts(self) -> dict[Path, tuple[str, str]]:
        """The files that are not the same in both versions, each with its text before and after."""
        found = {}
        for path in sorted({*self.files, *self.originals}):
            on_disk = path.read_bytes() if path.exists() else b""
            texts = (self.originals.get(path, on_disk), self.files.get(path, on_disk))
            found[path] = (_decoded(texts[0]), _decoded(texts[1]))
        return found

    def lines(self) -> LineMap:
        """Which lines of the converted files correspond to which of the original ones."""
        return self._lines

    @cached_property
    def _lines(self) -> LineMap:
        in_place = {path: path for path in self.originals if path not in self.files}
        return LineMap(self.texts(), {**in_place, **self.written})


def convert_copy(script: Path, runtime: str = "accelify", batch_size: str = "per-process") -> Converted:
    """What `accelify convert` would write with these options, without writing it.

    Raises:
        SourceError: the script cannot be read or is not Python.
    """
    from accelify.conversion import ConvertOptions
    from accelify.convert import convert_paths
    from accelify.notebook import is_notebook
    from accelify.proving import entries_of, settled

    files: dict[Path, bytes] = {}
    old: dict[Path, bytes] = {}
    remaining: list[str] = []
    order: list[str] = []
    own = Path(os.path.realpath(script))
    answer, renamed = Converted(), False
    conversions = tuple(convert_paths([script], ConvertOptions(batch_size=batch_size, runtime=runtime)))
    for entry in entries_of(conversions, [script]):
        settled(conversions, entry)
    for conversion in conversions:
        source = conversion.source
        if conversion.changed and source.path is not None:
            place = Path(os.path.realpath(source.path))
            if is_notebook(b"", place):
                # The cells of a notebook run as one script, in its place.
                files[place], old[place] = conversion.new_text.encode(), source.text.encode()
                continue
            files[place] = source.encode(conversion.new_text)
            if (runs_today := modernised(source.text)) != source.text:
                old[place] = source.encode(runs_today)
                renamed = True
        shown = {f: published(f) for f in conversion.remaining}
        left = {f: f"{_where(f)}: {one.code} {one.message}" for f, one in shown.items()}
        remaining += [line for found, line in left.items() if found.severity is not Severity.INFO]
        order += [line for found, line in left.items() if found.code in _ORDER]
        if source.path is not None and Path(os.path.realpath(source.path)) != own:
            continue
        if conversion.status in ("refused", "failed"):
            answer = replace(answer, refused=conversion.reason or "the converter gave no reason")
        elif conversion.status == "unchanged":
            answer = replace(answer, unchanged=conversion.reason or "nothing in it needs a change")
    return replace(
        answer,
        files=files,
        remaining=tuple(remaining),
        order=tuple(order),
        originals=old,
        modernised=renamed,
        conversions=conversions,
        versions=(str(script), f"by `convert --batch-size {batch_size}`"),
    )


def _where(finding: Finding) -> str:
    return f"cell {finding.cell}:{finding.line}" if finding.cell else f"line {finding.line}"


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
