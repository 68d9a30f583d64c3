"""What `check` and the language server find in one script."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accelify.conversion import REFUSED, UNCHANGED, Conversion, ConvertOptions, left_alone
from accelify.findings import Finding
from accelify.marks import marked_places
from accelify.project import Imports
from accelify.proving import checked, entries_of, prove
from accelify.rule_codes import published_all
from accelify.screen import DISTRIBUTED, may_be_distributed
from accelify.selection import selection_for, shown, unused_ignores
from accelify.source import Source, SourceError

ALREADY_DISTRIBUTED = "ACC001"


@dataclass(frozen=True)
class Linted:
    """The findings of a script, with lines of its text, and what `convert` would make of it."""

    source: Source
    findings: list[Finding]
    conversions: list[Conversion]


def lint(
    source: Source,
    imports: Imports,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    *,
    only_distributed: bool = False,
) -> Linted:
    """Look for what goes wrong in a script on several devices.

    Args:
        source: the script; modules that it imports are read from the disk.
        imports: what the files of its project import.
        select, ignore: codes, beside those of [tool.accelify].
        only_distributed: finds nothing in a script for one device, whatever [tool.accelify] says.

    Raises:
        SourceError: for a configuration that makes no sense, and for files that cannot be read.
    """
    selection = selection_for(source.path, select, ignore)
    conversions = [left_alone(source, UNCHANGED, "it has an Accelerator")]
    findings = checked(conversions[0]) if _imports_accelerator(source.tree) else None
    if findings is None:
        # Its import takes as long as the check of a script that needs none of it.
        from accelify.convert import convert_project

        conversions = convert_project(source, ConvertOptions(), imports)
        if conversions[0].status in (UNCHANGED, REFUSED) and _may_be_distributed(source, imports):
            findings = checked(conversions[0])
    if findings is None and (only_distributed or selection.only_distributed):
        return Linted(source, [], conversions)
    for entry in entries_of(conversions, [source.path] if source.path is not None else []):
        prove(conversions, entry)
    if findings is None:
        findings = [f for c in conversions for f in [*c.applied, *c.remaining]]
    findings += marked_places(source, findings)
    # Convert leaves a script alone that is distributed already; nothing is wrong with it.
    findings = [one for one in findings if one.code != ALREADY_DISTRIBUTED]
    unused = unused_ignores(findings, source, selection)
    left = [*shown(findings, source, selection), *unused]
    return Linted(source, published_all(left), conversions)


def _may_be_distributed(source: Source, imports: Imports) -> bool:
    """Whether a script, or a module that it imports from its project, can be written for several processes."""
    return may_be_distributed(source.text) or (
        source.path is not None and imports.leads_to_words(Path(source.path), DISTRIBUTED)
    )


def _imports_accelerator(tree: ast.Module) -> bool:
    """Whether a script imports a library with an Accelerator: it is not converted, whatever else it does."""
    names = [
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    return any(name.partition(".")[0] in ("accelify", "accelerate") for name in names)


def script_line(finding: Finding, source: Source | None) -> str:
    """The line of code that a finding begins in; empty where it cannot be read.

    Args:
        finding: with the lines of its file.
        source: the file, None where it is to be read.
    """
    try:
        known = source or Source.read(Path(finding.path))
    except SourceError:
        return ""
    lines = known.text.split("\n")
    return lines[finding.line - 1] if 0 < finding.line <= len(lines) else ""
