"""`accelify check`: print what keeps training scripts from running on several devices, and change nothing."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from accelify.cli.inputs import STDIN, collect, garbage_left, read_script
from accelify.cli.terminal import BAD_INPUT, CONVERTED, NEEDS_A_PERSON, coloured, complain, fail, track
from accelify.findings import Finding
from accelify.project import Imports
from accelify.source import SourceError

ALREADY_DISTRIBUTED = "ACC001"


class OutputFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def check(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Scripts or folders; - reads a script from standard input."),
    ],
    output_format: Annotated[
        OutputFormat, typer.Option(help="How findings are printed.")
    ] = OutputFormat.TEXT,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="Rules to show (ACC101,ACC2 or ALL).")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODES", help="Rules not to show.")] = None,
) -> None:
    """Lint training scripts: what keeps them from running on several devices with the same losses.

    Prints one line for each finding; quiet where there is none. Those marked [*] are fixed by `accelify convert`.
    A comment `# accelify: ignore[ACC101]` in the script and [tool.accelify] in pyproject.toml leave findings out.
    """
    findings: list[Finding] = []
    code = CONVERTED
    try:
        inputs = None if paths == [STDIN] else collect(paths, need_scripts=False)
    except SourceError as error:
        fail(str(error))
    scripts = [STDIN] if inputs is None else inputs.scripts
    imports = Imports() if inputs is None else inputs.imports
    for path in track(scripts, len(scripts), "checking"):
        try:
            findings += _findings(path, select or [], ignore or [], imports)
        except SourceError as error:
            complain(str(error))
            code = max(code, BAD_INPUT if inputs is None or path in inputs.named else NEEDS_A_PERSON)
    _print(sorted(findings, key=lambda finding: (finding.path, finding.cell, finding)), output_format)
    raise typer.Exit(max(code, NEEDS_A_PERSON if findings else CONVERTED))


def _findings(path: Path, select: list[str], ignore: list[str], imports: Imports) -> list[Finding]:
    from accelify.conversion import REFUSED, UNCHANGED, ConvertOptions
    from accelify.convert import convert_project
    from accelify.proving import checked, entries_of, may_be_distributed, prove
    from accelify.selection import selection_for, shown

    selection = selection_for(None if path == STDIN else path, select, ignore)
    with garbage_left():
        source = read_script(path)
        conversions = convert_project(source, ConvertOptions(), imports)
        as_it_is = None
        if conversions[0].status in (UNCHANGED, REFUSED) and may_be_distributed(conversions[0]):
            as_it_is = checked(conversions[0])
        for entry in entries_of(conversions, [path]):
            prove(conversions, entry)
    findings = as_it_is
    if findings is None:
        findings = [f for c in conversions for f in [*c.applied, *c.remaining]]
    # Convert leaves a script alone that is distributed already; nothing is wrong with it.
    findings = shown(
        (finding for finding in findings if finding.code != ALREADY_DISTRIBUTED), source, selection
    )
    return [source.place(finding) for finding in findings]


def _print(findings: list[Finding], output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        from accelify.report.json import findings_json

        text = findings_json(findings)
    elif output_format is OutputFormat.GITHUB:
        from accelify.report.github import findings_github

        text = findings_github(findings)
    elif output_format is OutputFormat.SARIF:
        from accelify.report.sarif import findings_sarif

        text = findings_sarif(findings)
    else:
        from accelify.report.text import findings_list

        text = findings_list(findings, colour=coloured(sys.stdout))
    print(text, end="")
