"""`accelify server` answers a real client over standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from tests.cli.conftest import PLAIN

# Against hangs alone.
PATIENCE = 120
SEVERAL = """\
from accelerate import Accelerator

accelerator = Accelerator()
text = "\U0001f600"; accelerator.wait_for_everyone()
if accelerator.is_main_process:
    text = "\U0001f600"; accelerator.wait_for_everyone()
"""


class Editor:
    """What an editor does with one script."""

    def __init__(self, client: LanguageClient, path: Path) -> None:
        self.client = client
        self.uri = path.as_uri()
        self.shown: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def show(params: lsp.PublishDiagnosticsParams) -> None:
            self.shown.put_nowait(params)

    async def open(self, text: str) -> list[lsp.Diagnostic]:
        document = lsp.TextDocumentItem(self.uri, "python", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(document))
        return await self.next()

    async def change(self, text: str, version: int) -> list[lsp.Diagnostic]:
        document = lsp.VersionedTextDocumentIdentifier(version, self.uri)
        changes = [lsp.TextDocumentContentChangeWholeDocument(text)]
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))
        return await self.next()

    async def next(self) -> list[lsp.Diagnostic]:
        return list((await asyncio.wait_for(self.shown.get(), PATIENCE)).diagnostics)

    async def actions(self, line: int) -> list[lsp.CodeAction]:
        place = lsp.Position(line, 0)
        params = lsp.CodeActionParams(
            lsp.TextDocumentIdentifier(self.uri), lsp.Range(place, place), lsp.CodeActionContext([])
        )
        found = await self.client.text_document_code_action_async(params)
        return [one for one in found or [] if isinstance(one, lsp.CodeAction)]

    async def hover(self, line: int) -> str:
        params = lsp.HoverParams(lsp.TextDocumentIdentifier(self.uri), lsp.Position(line, 6))
        found = await self.client.text_document_hover_async(params)
        return (
            found.contents.value
            if found is not None and isinstance(found.contents, lsp.MarkupContent)
            else ""
        )


def in_editor(path: Path, work: Callable[[Editor], Awaitable[None]]) -> None:
    async def session() -> None:
        client = LanguageClient("test", "1")
        editor = Editor(client, path)
        await client.start_io(sys.executable, "-m", "accelify", "server")
        try:
            await asyncio.wait_for(
                client.initialize_async(lsp.InitializeParams(capabilities=lsp.ClientCapabilities())), PATIENCE
            )
            client.initialized(lsp.InitializedParams())
            await work(editor)
            await asyncio.wait_for(client.shutdown_async(None), PATIENCE)
            client.exit(None)
        finally:
            await client.stop()

    asyncio.run(session())


def applied(text: str, edits: list[lsp.TextEdit]) -> str:
    assert len(edits) == 1
    lines = text.split("\n")
    start, end = edits[0].range.start, edits[0].range.end

    def cut(line: str, units: int) -> int:
        return len(line.encode("utf-16-le")[: 2 * units].decode("utf-16-le"))

    before = "\n".join([*lines[: start.line], lines[start.line][: cut(lines[start.line], start.character)]])
    after = "\n".join([lines[end.line][cut(lines[end.line], end.character) :], *lines[end.line + 1 :]])
    return before + edits[0].new_text + after


def test_findings_pages_and_ways_out(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SEVERAL)

    async def work(editor: Editor) -> None:
        (found,) = await editor.open(SEVERAL)
        assert (found.code, found.source, found.range.start.line) == ("ACC704", "accelify", 5)
        # Characters of two units of UTF-16 count twice.
        assert found.range.start.character == SEVERAL.split("\n")[5].index("accelerator") + 1
        assert "ACC704" in await editor.hover(5)
        assert await editor.hover(0) == ""
        (silence,) = [one for one in await editor.actions(5) if one.title.startswith("Ignore")]
        assert silence.edit is not None
        assert silence.edit.changes is not None
        silent = applied(SEVERAL, list(silence.edit.changes[editor.uri]))
        assert silent.split("\n")[5].endswith("# accelify: ignore[ACC704]")
        assert await editor.change(silent, 2) == []
        assert await editor.change("def half(", 3) == []

    in_editor(path, work)


def test_a_plain_script_is_converted_by_an_action(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PLAIN)

    async def work(editor: Editor) -> None:
        found = await editor.open(PLAIN)
        line = PLAIN.split("\n").index("        loss.backward()")
        assert line in {one.range.start.line for one in found}
        convert = next(one for one in await editor.actions(line) if one.title.startswith("Convert"))
        assert convert.edit is not None
        assert convert.edit.changes is not None
        converted = applied(PLAIN, list(convert.edit.changes[editor.uri]))
        assert "accelerator.backward(loss)" in converted
        assert await editor.change(converted, 2) == []

    in_editor(path, work)


FIXABLE = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.zeros(64, 4), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
print("done")
"""


def test_fixes_are_actions(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FIXABLE)

    async def work(editor: Editor) -> None:
        text, version = FIXABLE, 1
        assert len(await editor.open(text)) == 2
        for line, title in ((10, "Use accelerator.backward"), (12, "Print on the main process")):
            (fix,) = [one for one in await editor.actions(line) if one.title == title]
            assert fix.is_preferred
            assert fix.edit is not None
            assert fix.edit.changes is not None
            text = applied(text, list(fix.edit.changes[editor.uri]))
            version += 1
            left = await editor.change(text, version)
        assert left == []

    in_editor(path, work)


def test_cells_of_notebooks(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    code = lsp.NotebookCellKind.Code
    head, _, tail = FIXABLE.partition("for x")
    texts = ["# Training", head.rstrip("\n"), "for x" + tail.rstrip("\n")]
    kinds = [lsp.NotebookCellKind.Markup, code, code]
    places = [f"vscode-notebook-cell:{path}#{number}" for number in range(3)]
    cells = [lsp.NotebookCell(kind, place) for kind, place in zip(kinds, places, strict=True)]
    documents = [
        lsp.TextDocumentItem(place, "python", 1, text) for place, text in zip(places, texts, strict=True)
    ][1:]

    async def work(editor: Editor) -> None:
        notebook = lsp.NotebookDocument(path.as_uri(), "jupyter-notebook", 1, cells)
        editor.client.notebook_document_did_open(lsp.DidOpenNotebookDocumentParams(notebook, documents))
        shown = [await asyncio.wait_for(editor.shown.get(), PATIENCE) for _ in range(2)]
        found = {one.uri: list(one.diagnostics) for one in shown}
        assert found[places[1]] == []
        lines = texts[2].split("\n")
        assert [lines[one.range.start.line] for one in found[places[2]]] == [
            "    loss.backward()",
            'print("done")',
        ]
        editor.uri = places[2]
        assert "ACC712" in await editor.hover(2)
        fix, silence = await editor.actions(2)
        assert fix.edit is not None
        assert fix.edit.changes is not None
        assert list(fix.edit.changes) == [places[2]]
        fixed = applied(texts[2], list(fix.edit.changes[places[2]]))
        assert fixed == texts[2].replace("loss.backward()", "accelerator.backward(loss)")
        assert silence.title.startswith("Ignore")

    in_editor(path, work)
