"""`accelify check`: print what is wrong with training scripts on several devices, and change nothing."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from accelify.cli import terminal
from accelify.cli.excluded import leave_out
from accelify.cli.inputs import STDIN, Inputs, collect, garbage_left, read_script
from accelify.cli.terminal import BAD_INPUT, CONVERTED, NEEDS_A_PERSON, coloured, complain, fail, track
from accelify.findings import Finding, Severity
from accelify.project import Imports
from accelify.source import ConfigurationError, Source, SourceError


class OutputFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    SARIF = "sarif"


@dataclass(frozen=True)
class _Options:
    """What the user chose for the findings of each script."""

    select: list[str]
    ignore: list[str]
    name: Path | None


class _Lines:
    """The lines of code that findings stand at."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int, int], str] = {}

    def note(self, source: Source, finding: Finding) -> Finding:
        """Remember the line of a finding of a script, and give the finding with its place in the file."""
        from accelify.linting import script_line

        placed = source.place(finding)
        own = str(source.path or "<stdin>") == finding.path
        self._of[placed.path, placed.cell, placed.line] = script_line(finding, source if own else None)
        return placed

    def of(self, finding: Finding) -> str:
        """The line that a finding begins in; empty where it is not known."""
        return self._of.get((finding.path, finding.cell, finding.line), "")


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
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Files or folders to leave out, beside those that Git ignores."),
    ] = None,
    force_exclude: Annotated[
        bool, typer.Option("--force-exclude", help="Leave out what is named on the command line, too.")
    ] = False,
    stdin_filename: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The name of the script on standard input.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show only what is not accepted in this file.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Accept all findings: write them to the baseline.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show how many findings each rule has.")
    ] = False,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="End with 0 also where findings are.")
    ] = False,
) -> None:
    """Lint training scripts: what goes wrong in them, or keeps them from running, on several devices.

    Quiet where nothing is found. Findings marked [*] are fixed by `accelify convert`. Scripts that use an
    Accelerator or torch.distributed are gone through as each process would run them.

    A comment `# accelify: ignore[ACC101]` in the script and [tool.accelify] in pyproject.toml leave findings out.
    """
    if update_baseline and baseline is None:
        fail("--update-baseline needs the name of the file: --baseline FILE.")
    findings: list[Finding] = []
    lines = _Lines()
    code = CONVERTED
    try:
        inputs = None if paths == [STDIN] else _inputs(paths, exclude or [], force_exclude)
    except SourceError as error:
        fail(str(error))
    scripts = [STDIN] if inputs is None else inputs.scripts
    imports = Imports() if inputs is None else inputs.imports
    options = _Options(select or [], ignore or [], stdin_filename)
    for path in track(scripts, len(scripts), "checking"):
        try:
            findings += _findings(path, options, imports, lines)
        except ConfigurationError as error:
            fail(str(error))
        except SourceError as error:
            complain(str(error))
            code = max(code, BAD_INPUT if inputs is None or path in inputs.named else NEEDS_A_PERSON)
    findings = list(dict.fromkeys(sorted(findings, key=lambda one: (one.path, one.cell, one))))
    try:
        if baseline is not None:
            findings = _against(baseline, update_baseline, findings, lines)
        _write(_text(findings, output_format, lines, statistics, output_file is None), output_file)
    except SourceError as error:
        fail(str(error))
    failing = any(finding.severity is not Severity.INFO for finding in findings)
    raise typer.Exit(max(code, NEEDS_A_PERSON if failing and not exit_zero else CONVERTED))


def _inputs(paths: list[Path], exclude: list[str], forced: bool) -> Inputs:
    inputs = collect(paths, need_scripts=False)
    leave_out(inputs, exclude, forced)
    return inputs


def _findings(path: Path, options: _Options, imports: Imports, lines: _Lines) -> list[Finding]:
    from accelify.linting import lint

    source = read_script(path, options.name)
    with garbage_left():
        found = lint(source, imports, options.select, options.ignore).findings
    return [lines.note(source, finding) for finding in found]


def _against(baseline: Path, update: bool, findings: list[Finding], lines: _Lines) -> list[Finding]:
    from accelify.baseline import later_than, write_baseline

    if not update:
        return later_than(baseline, findings, lines.of)
    write_baseline(baseline, findings, lines.of)
    return []


def _text(
    findings: list[Finding], output_format: OutputFormat, lines: _Lines, statistics: bool, to_terminal: bool
) -> str:
    if statistics:
        counts = Counter((one.code, one.name) for one in findings)
        return "".join(f"{number:>5}  {code}  {name}\n" for (code, name), number in counts.most_common())
    if output_format is OutputFormat.JSON:
        from accelify.report.json import findings_json

        return findings_json(findings)
    if output_format is OutputFormat.GITHUB:
        from accelify.report.github import findings_github

        return findings_github(findings)
    if output_format is OutputFormat.GITLAB:
        from accelify.report.gitlab import findings_gitlab

        return findings_gitlab(findings, lines.of)
    if output_format is OutputFormat.JUNIT:
        from accelify.report.junit import findings_junit

        return findings_junit(findings)
    if output_format is OutputFormat.SARIF:
        from accelify.report.sarif import findings_sarif
        from accelify.rules import all_rules, rule_page

        pages = {code: (entry.rule.summary, rule_page(entry)) for code, entry in all_rules().items()}
        return findings_sarif(findings, pages)
    colour = to_terminal and coloured(sys.stdout)
    if output_format is OutputFormat.CONCISE:
        from accelify.report.text import findings_list

        return findings_list(findings, colour=colour)
    from accelify.report.marked import findings_marked

    return findings_marked(findings, lines.of, colour=colour, total=terminal.amount != terminal.QUIET)


def _write(text: str, file: Path | None) -> None:
    if file is None:
        print(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{file} cannot be written: {error.strerror or error}.", file) from None
