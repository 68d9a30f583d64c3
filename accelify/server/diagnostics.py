"""Findings as a language server speaks of them: diagnostics, and the edits that take them away."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types as lsp

from accelify.conversion import CONVERTED, Conversion
from accelify.findings import Finding, Severity
from accelify.linting import Linted

SOURCE = "accelify"
_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.INFO: lsp.DiagnosticSeverity.Information,
}


def diagnostics_of(linted: Linted) -> list[lsp.Diagnostic]:
    """The diagnostics of a script: its own findings, and at its first line those of modules that it trains with."""
    own = str(linted.source.path or "<stdin>")
    lines = linted.source.text.split("\n")
    found = []
    for finding in linted.findings:
        found.append(diagnostic_of(finding, lines, here=finding.path == own))
    return found


def diagnostic_of(finding: Finding, lines: Sequence[str], *, here: bool) -> lsp.Diagnostic:
    """A finding at its lines of a text; at the first one where it is of another file."""
    return lsp.Diagnostic(
        range=_range(finding, lines) if here else _span(lines, 1, 1, 0),
        message=finding.message if here else f"{finding.place}: {finding.message}",
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        source=SOURCE,
    )


def _range(finding: Finding, lines: Sequence[str]) -> lsp.Range:
    same_line = finding.end_line in (0, finding.line) and finding.end_column > finding.column
    return _span(lines, finding.line, finding.column, finding.end_column if same_line else 0)


def _span(lines: Sequence[str], line: int, column: int, end: int) -> lsp.Range:
    """A span of one line, in the units of UTF-16 that editors count; to the line's end without an `end`."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    first = max(column - 1, len(text) - len(text.lstrip()))
    last = end - 1 if end else len(text.rstrip())
    return lsp.Range(
        lsp.Position(line - 1, _units(text[:first])), lsp.Position(line - 1, _units(text[: max(last, first)]))
    )


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def actions_of(linted: Linted, uri: str, diagnostics: Sequence[lsp.Diagnostic]) -> list[lsp.CodeAction]:
    """The ways out at some diagnostics: a comment that silences one, and the conversion of the whole script."""
    lines = linted.source.text.split("\n")
    actions = _fixing(linted, uri, diagnostics, lines)
    actions += [silence(lines, uri, one) for one in diagnostics if one.source == SOURCE and one.code]
    entry = linted.conversions[0]
    if diagnostics and entry.status == CONVERTED and entry.changed and len(_changed(linted)) == 1:
        actions.append(
            lsp.CodeAction(
                title="Convert this script for several devices",
                kind=lsp.CodeActionKind.QuickFix,
                edit=lsp.WorkspaceEdit(changes={uri: [whole(entry.new_text, lines)]}),
            )
        )
    return actions


def _fixing(
    linted: Linted, uri: str, diagnostics: Sequence[lsp.Diagnostic], lines: Sequence[str]
) -> list[lsp.CodeAction]:
    """The fixes of findings that `check --fix` makes, at some diagnostics."""
    from accelify.fixing import Fixes, text_with

    fixes, found = Fixes(linted), []
    at = {(one.code, one.range.start.line): one for one in diagnostics}
    for fix in fixes.all():
        diagnostic = at.get((fix.finding.code, fix.finding.line - 1))
        text = text_with(fixes, [fix]) if diagnostic is not None else None
        if diagnostic is not None and text is not None:
            found.append(
                lsp.CodeAction(
                    title=fix.title,
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[diagnostic],
                    is_preferred=fix.safe,
                    edit=lsp.WorkspaceEdit(changes={uri: [whole(text, lines)]}),
                )
            )
    return found


def _changed(linted: Linted) -> list[Conversion]:
    return [one for one in linted.conversions if one.changed]


def silence(lines: Sequence[str], uri: str, diagnostic: lsp.Diagnostic) -> lsp.CodeAction:
    """A comment that silences a finding."""
    number = diagnostic.range.start.line
    text = lines[number].rstrip() if number < len(lines) else ""
    end = lsp.Position(number, _units(text))
    comment = f"  # accelify: ignore[{diagnostic.code}]"
    return lsp.CodeAction(
        title=f"Ignore {diagnostic.code} on this line",
        kind=lsp.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        edit=lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(lsp.Range(end, end), comment)]}),
    )


def whole(text: str, lines: Sequence[str]) -> lsp.TextEdit:
    """A text in the place of some lines."""
    end = lsp.Position(len(lines) - 1, _units(lines[-1]))
    return lsp.TextEdit(lsp.Range(lsp.Position(0, 0), end), text)
