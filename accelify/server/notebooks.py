"""Notebooks in a language server: a document for each cell, and findings in the cells that they are of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lsprotocol import types as lsp
from pygls.uris import to_fs_path

from accelify.fixing import Fixes, text_with
from accelify.linting import Linted, lint
from accelify.notebook import NotebookSource
from accelify.project import Imports
from accelify.server.diagnostics import diagnostic_of, silence, whole
from accelify.source import Source, SourceError


@dataclass
class Book:
    """A notebook as an editor shows it.

    `cells` are the place and the text of each cell; `found` has the diagnostics of each place, once it was looked at.
    """

    uri: str
    cells: list[tuple[str, str, bool]]
    linted: Linted | None = None
    found: dict[str, list[lsp.Diagnostic]] = field(default_factory=dict)

    def look(self) -> None:
        """Look at the notebook; nothing is found in one that cannot be read as it stands."""
        self.found = {uri: [] for uri, _, is_code in self.cells if is_code}
        path = to_fs_path(self.uri)
        cells: list[dict[str, object]] = [
            {"cell_type": "code" if is_code else "markdown", "source": text, "metadata": {}}
            for _, text, is_code in self.cells
        ]
        data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
        try:
            source = Source.from_bytes(data, Path(path).with_suffix(".ipynb") if path else None)
            _ = source.tree
            self.linted = lint(source, Imports())
        except SourceError:
            self.linted = None
            return
        for finding in self.linted.findings:
            placed = source.place(finding)
            number = placed.cell or next((n for n, cell in enumerate(self.cells, 1) if cell[2]), 0)
            if number:
                uri, text, _ = self.cells[number - 1]
                self.found[uri].append(diagnostic_of(placed, text.split("\n"), here=bool(placed.cell)))

    def actions(self, uri: str, diagnostics: Sequence[lsp.Diagnostic]) -> list[lsp.CodeAction]:
        """The ways out at some diagnostics of a cell."""
        text = next(text for place, text, _ in self.cells if place == uri)
        silent = [silence(text.split("\n"), uri, one) for one in diagnostics]
        return [*self._fixing(uri, diagnostics), *silent]

    def _fixing(self, uri: str, diagnostics: Sequence[lsp.Diagnostic]) -> list[lsp.CodeAction]:
        if self.linted is None or not isinstance(self.linted.source, NotebookSource):
            return []
        source, found = self.linted.source, []
        fixes = Fixes(self.linted)
        for fix in fixes.all():
            placed = source.place(fix.finding)
            at = [
                one
                for one in diagnostics
                if one.code == fix.finding.code
                and placed.cell
                and self.cells[placed.cell - 1][0] == uri
                and one.range.start.line == placed.line - 1
            ]
            text = text_with(fixes, [fix]) if at else None
            if text is not None and (changes := self._changes(source, text)):
                found.append(
                    lsp.CodeAction(
                        title=fix.title,
                        kind=lsp.CodeActionKind.QuickFix,
                        diagnostics=at,
                        is_preferred=fix.safe,
                        edit=lsp.WorkspaceEdit(changes=changes),
                    )
                )
        return found

    def _changes(self, source: NotebookSource, text: str) -> dict[str, Sequence[lsp.TextEdit]]:
        """The edits of the cells that differ in the notebook's new text."""
        after = json.loads(source.encode(text))["cells"]
        changes: dict[str, Sequence[lsp.TextEdit]] = {}
        for (uri, before, is_code), cell in zip(self.cells, after, strict=True):
            new = "".join(cell["source"])
            if is_code and new != before:
                changes[uri] = [whole(new, before.split("\n"))]
        return changes
