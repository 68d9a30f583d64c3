"""`accelify check`: print what keeps training scripts from running on several devices, and change nothing."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelify.cli.inputs import STDIN, collect
from accelify.cli.terminal import BAD_INPUT, CONVERTED, NEEDS_A_PERSON, coloured, complain, fail, track
from accelify.findings import Finding
from accelify.source import Source, SourceError

if TYPE_CHECKING:
    from accelify.convert import Conversion


class OutputFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


def check(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Scripts or folders; - reads a script from standard input."),
    ],
    output_format: Annotated[
        OutputFormat, typer.Option(help="How findings are printed.")
    ] = OutputFormat.TEXT,
) -> None:
    """Lint training scripts: what keeps them from running on several devices with the same losses.

    Prints one line for each finding; quiet where there is none. Those marked [*] are mended by `accelify convert`.
    """
    findings: list[Finding] = []
    code = CONVERTED
    try:
        inputs = None if paths == [STDIN] else collect(paths, need_scripts=False)
    except SourceError as error:
        fail(str(error))
    scripts = [STDIN] if inputs is None else inputs.scripts
    for path in track(scripts, len(scripts), "checking"):
        try:
            findings += _findings(path)
        except SourceError as error:
            complain(str(error))
            code = max(code, BAD_INPUT if inputs is None or path in inputs.named else NEEDS_A_PERSON)
    _print(sorted(findings), output_format)
    raise typer.Exit(max(code, NEEDS_A_PERSON if findings else CONVERTED))


def _findings(path: Path) -> list[Finding]:
    from accelify.convert import ConvertOptions, convert_source

    source = Source.from_bytes(sys.stdin.buffer.read()) if path == STDIN else Source.read(path)
    conversion: Conversion = convert_source(source, ConvertOptions())
    return [*conversion.applied, *conversion.remaining]


def _print(findings: list[Finding], output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        from accelify.report.json import findings_json

        print(findings_json(findings), end="")
        return
    from accelify.report.text import findings_list

    print(findings_list(findings, colour=coloured(sys.stdout)), end="")
