"""A language server over pygls: looks at each script that an editor opens or changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

import accelify
from accelify.linting import Linted, lint
from accelify.project import Imports
from accelify.rules import all_rules, rule_page
from accelify.server.diagnostics import SOURCE, actions_of, diagnostics_of
from accelify.server.notebooks import Book
from accelify.source import Source, SourceError

# Seconds without a change after which a script is looked at.
_PAUSE = 0.3


class AccelifyServer(LanguageServer):
    """Holds what was found in the scripts that are open."""

    def __init__(self) -> None:
        kinds = [lsp.NotebookDocumentFilterWithNotebook("*", [lsp.NotebookCellLanguage("python")])]
        super().__init__(
            "accelify",
            accelify.__version__,
            notebook_document_sync=lsp.NotebookDocumentSyncOptions(kinds, save=True),
        )
        self.found: dict[str, tuple[Linted, list[lsp.Diagnostic]]] = {}
        self.books: dict[str, Book] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def look_at(self, uri: str, pause: float = _PAUSE, *, book: bool = False) -> None:
        """Look at a script or a notebook once it rests, and publish what is found."""
        if (before := self._waiting.pop(uri, None)) is not None:
            before.cancel()
        looking = self._look_at_book(uri, pause) if book else self._look_at(uri, pause)
        self._waiting[uri] = asyncio.get_running_loop().create_task(looking)

    async def _look_at_book(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        notebook = self.workspace.get_notebook_document(notebook_uri=uri)
        if notebook is None:
            return
        cells = [
            (cell.document, self._text_of(cell), cell.kind == lsp.NotebookCellKind.Code)
            for cell in notebook.cells
        ]
        book = Book(uri, cells)
        await asyncio.to_thread(book.look)
        gone = set(self.books[uri].found) - set(book.found) if uri in self.books else set()
        self.books[uri] = book
        for place, diagnostics in [*book.found.items(), *((place, []) for place in gone)]:
            self._publish(place, None, diagnostics)

    def _text_of(self, cell: lsp.NotebookCell) -> str:
        known = self.workspace.text_documents.get(cell.document)
        return known.source if known is not None else ""

    def forget_book(self, uri: str) -> None:
        """A notebook is closed: nothing is said of it any more."""
        if (before := self._waiting.pop(uri, None)) is not None:
            before.cancel()
        book = self.books.pop(uri, None)
        for place in book.found if book is not None else ():
            self._publish(place, None, [])

    def book_with(self, cell: str) -> Book | None:
        """The notebook that a cell is of."""
        return next((book for book in self.books.values() if cell in book.found), None)

    async def _look_at(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        document = self.workspace.get_text_document(uri)
        linted = await asyncio.to_thread(_linted, uri, document.source)
        if linted is None:
            self.found.pop(uri, None)
            self._publish(uri, document.version, [])
        elif (
            linted.source.text == document.source.replace("\r\n", "\n")
            or linted.source.text == document.source
        ):
            diagnostics = diagnostics_of(linted)
            self.found[uri] = linted, diagnostics
            self._publish(uri, document.version, diagnostics)

    def _publish(self, uri: str, version: int | None, diagnostics: list[lsp.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=diagnostics)
        )

    def forget(self, uri: str) -> None:
        """A script is closed: nothing is said of it any more."""
        if (before := self._waiting.pop(uri, None)) is not None:
            before.cancel()
        self.found.pop(uri, None)
        self._publish(uri, None, [])


def _linted(uri: str, text: str) -> Linted | None:
    """What is found in a script; None for one that cannot be read as it stands, as happens while one types."""
    path = to_fs_path(uri)
    try:
        source = Source.from_bytes(text.encode(), Path(path) if path else None)
        _ = source.tree
        return lint(source, Imports())
    except SourceError:
        return None


def make_server() -> AccelifyServer:
    """A server that waits for an editor."""
    server = AccelifyServer()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.look_at(params.text_document.uri, pause=0.0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.look_at(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        server.look_at(params.text_document.uri, pause=0.0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_OPEN)
    async def opened_book(params: lsp.DidOpenNotebookDocumentParams) -> None:
        server.look_at(params.notebook_document.uri, pause=0.0, book=True)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def changed_book(params: lsp.DidChangeNotebookDocumentParams) -> None:
        server.look_at(params.notebook_document.uri, book=True)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_SAVE)
    async def saved_book(params: lsp.DidSaveNotebookDocumentParams) -> None:
        server.look_at(params.notebook_document.uri, pause=0.0, book=True)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE)
    async def closed_book(params: lsp.DidCloseNotebookDocumentParams) -> None:
        server.forget_book(params.notebook_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        line = params.position.line
        book = server.book_with(params.text_document.uri)
        if book is not None:
            diagnostics = book.found[params.text_document.uri]
        else:
            _, diagnostics = server.found.get(params.text_document.uri, (None, []))
        rules = all_rules()
        codes = dict.fromkeys(str(one.code) for one in diagnostics if one.range.start.line == line)
        pages = [rule_page(rules[code]) for code in codes if code in rules]
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n---\n".join(pages))) if pages else None

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        book = server.book_with(uri)
        linted, diagnostics = server.found.get(uri, (None, book.found[uri] if book is not None else []))
        first, last = params.range.start.line, params.range.end.line
        at = [one for one in diagnostics if one.source == SOURCE and first <= one.range.start.line <= last]
        if book is not None:
            return book.actions(uri, at)
        return actions_of(linted, uri, at) if linted is not None else []

    return server
