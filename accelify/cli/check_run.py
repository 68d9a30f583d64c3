"""What `accelify check` does; it imports only what it needs, so that a quick look is quick."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from accelify import files_read
from accelify.cache import Cache, cache_folder
from accelify.cli import terminal
from accelify.cli.checking import Asked, Checked, check_all, check_one
from accelify.cli.inputs import STDIN, Inputs, collect
from accelify.cli.terminal import BAD_INPUT, CONVERTED, NEEDS_A_PERSON, coloured, complain, fail, followed
from accelify.configuration import CONFIG, nearest_section
from accelify.findings import Finding, Severity
from accelify.project import Imports
from accelify.source import SourceError, may_be_started

CREATED = "ACC102"
"""What is found in a script that has no Accelerator, and gets one."""


class OutputFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    RDJSON = "rdjson"
    SARIF = "sarif"


class _Lines:
    """The lines of code that findings stand at."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int, int], str] = {}

    def note(self, finding: Finding, line: str) -> None:
        """Remember the line that a finding begins in."""
        self._of[finding.path, finding.cell, finding.line] = line

    def of(self, finding: Finding) -> str:
        """The line that a finding begins in; empty where it is not known."""
        return self._of.get((finding.path, finding.cell, finding.line), "")


@dataclass
class Options:
    """The options of the command, each by its name there."""

    output_format: OutputFormat = OutputFormat.TEXT
    select: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    force_exclude: bool = False
    only_distributed: bool = False
    stdin_filename: Path | None = None
    baseline: Path | None = None
    update_baseline: bool = False
    add_ignores: bool = False
    show_files: bool = False
    config: Path | None = None
    isolated: bool = False
    statistics: bool = False
    output_file: Path | None = None
    no_cache: bool = False
    cache_dir: Path | None = None
    exit_zero: bool = False
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    watch: bool = False


def run_check(paths: list[Path], options: Options) -> NoReturn:
    """Check scripts and folders, print what is found, and end with the code of the command."""
    if options.config is not None or options.isolated:
        _take_settings(options.config, options.isolated)
    if options.watch:
        from accelify.cli.check_watch import check_again

        check_again(paths, options)
    if (options.fix or options.diff) and STDIN in paths:
        fail("--fix and --diff are for files: name the script.")
    if options.update_baseline and options.baseline is None:
        fail("--update-baseline needs the name of the file: --baseline FILE.")
    # What several scripts reach in one module is one finding.
    once: dict[tuple[Finding, str, int, int], Finding] = {}
    lines = _Lines()
    code = CONVERTED
    store = None if options.no_cache else Cache(options.cache_dir or cache_folder())
    try:
        inputs = None if paths == [STDIN] else _inputs(paths, options.exclude, options.force_exclude, store)
    except SourceError as error:
        fail(str(error))
    scripts = [STDIN] if inputs is None else inputs.scripts
    if options.show_files:
        print("".join(f"{path}\n" for path in scripts), end="")
        raise SystemExit(CONVERTED)
    imports = Imports() if inputs is None else inputs.imports
    for place, why in inputs.unread if inputs is not None else ():
        complain(f"{place} cannot be read: {why}.")
        code = NEEDS_A_PERSON
    given = frozenset(inputs.named if inputs is not None else ())
    if not scripts and (options.select or options.ignore):
        from accelify.selection import selection_for

        try:
            selection_for(None, options.select, options.ignore)
        except SourceError as error:
            fail(str(error))
    asked = Asked(
        tuple(options.select),
        tuple(options.ignore),
        options.stdin_filename,
        given,
        only_distributed=options.only_distributed,
    )
    came = {
        done.path: done
        for done in followed(check_all(scripts, asked, imports, store), len(scripts), "checking")
    }
    changed = accepted = 0
    parts = _parts(scripts, came)
    # For a project that was written for one device one message a script says what to do.
    counted = options.output_format is OutputFormat.TEXT and terminal.amount != terminal.VERBOSE
    counted = counted and not (options.select or options.baseline or options.add_ignores)
    plain: dict[Path, Checked] = {}
    for path in scripts:  # in their order, whatever was ready first
        if path in parts:
            continue
        done = came[path]
        if (options.fix or options.diff) and any(finding.fix for finding, _ in done.findings):
            from accelify.cli.check_fix import fix_script

            try:
                number = fix_script(path, asked, imports, unsafe=options.unsafe_fixes, only_diff=options.diff)
            except SourceError as error:
                fail(str(error))
            if number and options.fix:
                imports = Imports()
                done = check_one(path, asked, imports, store)
            if options.fix and not options.diff:
                done = _tried(done)
            changed += number
        if done.misconfigured:
            fail(done.problem)
        if done.problem:
            complain(done.problem)
            named = inputs is None or done.path in inputs.named
            code = max(code, BAD_INPUT if named else NEEDS_A_PERSON)
        if counted and path not in given and path != STDIN and _is_plain(done):
            plain[path] = done
        met = Counter[tuple[Finding, str, int]]()
        for finding, line in done.findings:
            at = (finding, finding.part, finding.cell)
            met[at] += 1  # further causes of a script stand at one place
            once.setdefault((*at, met[at]), finding)
            lines.note(finding, line)
    if options.diff:
        if not changed and terminal.amount != terminal.QUIET:
            print(
                "Nothing would be changed: no finding has a fix that leaves none in its place.",
                file=sys.stderr,
            )
        raise SystemExit(max(code, NEEDS_A_PERSON if changed and not options.exit_zero else CONVERTED))
    findings = sorted(once.values(), key=lambda one: (one.path, one.cell, one))
    try:
        if options.add_ignores:
            from accelify.cli.check_ignores import add_ignores

            silenced, findings = add_ignores(findings)
            print(f"{silenced} {'finding' if silenced == 1 else 'findings'} silenced.", file=sys.stderr)
        if options.baseline is not None:
            present = len(findings)
            findings = _against(options.baseline, options.update_baseline, findings, lines)
            accepted = present - len(findings)
            if options.update_baseline and terminal.amount != terminal.QUIET:
                noun = "finding" if present == 1 else "findings"
                print(f"{options.baseline} accepts {present} {noun}.", file=sys.stderr)
        to_terminal = options.output_file is None
        listed = {finding for one in plain.values() for finding, _ in one.findings if not options.statistics}
        shown = [finding for finding in findings if finding not in listed]
        text = _text(shown, options.output_format, lines, options.statistics, to_terminal)
        if listed:
            from accelify.report.text import plain_scripts

            total, width = terminal.amount != terminal.QUIET, terminal.width(sys.stdout) if to_terminal else 0
            colour = to_terminal and coloured(sys.stdout)
            made = [(path, one.edits, one.left, len(one.findings)) for path, one in plain.items()]
            text += plain_scripts(made, colour=colour, total=total, width=width)
        _write(text, options.output_file)
    except SourceError as error:
        fail(str(error))
    if options.output_format is OutputFormat.TEXT and terminal.amount != terminal.QUIET:
        for path in scripts:
            if (
                path in given
                and path.suffix not in (".py", ".pyi", ".ipynb")
                and not (came[path].findings or came[path].problem)
            ):
                complain(
                    f"no findings in {path}, whose name does not end in .py or .ipynb: it may be no script."
                )
    quiet = options.update_baseline or terminal.amount == terminal.QUIET
    if accepted and not quiet and (findings or not _is_for_people(options)):
        noun = "finding is" if accepted == 1 else "findings are"
        print(f"{accepted} {noun} not shown, as {options.baseline} accepts them.", file=sys.stderr)
    if not findings and _is_for_people(options):
        number = sum(not came[path].problem for path in scripts)
        if number:
            beside = f" beside the {accepted} that {options.baseline} accepts" if accepted else ""
            of = f" of {', '.join(options.select)}" if options.select else ""
            print(f"No findings{of} in {number} {'script' if number == 1 else 'scripts'}{beside}.")
        elif not scripts:
            print("No training scripts found.")
            way = "" if options.force_exclude else " (name a file to look at it)"
            for line in inputs.describe_left_out(way) if inputs is not None else ():
                print(line)
    if options.fix and changed:
        print(f"{changed} {'finding' if changed == 1 else 'findings'} fixed.", file=sys.stderr)
    failing = any(finding.severity is not Severity.INFO for finding in findings)
    raise SystemExit(max(code, NEEDS_A_PERSON if failing and not options.exit_zero else CONVERTED))


def _is_for_people(options: Options) -> bool:
    """Whether the findings go to a terminal, as text."""
    as_text = options.output_format in (OutputFormat.TEXT, OutputFormat.CONCISE) and not options.statistics
    return (
        as_text and options.output_file is None and sys.stdout.isatty() and terminal.amount != terminal.QUIET
    )


def _take_settings(file: Path | None, isolated: bool) -> None:
    """Have one file's settings hold, or none, here and in the processes that share the work."""
    from accelify import selection

    if file is not None and isolated:
        fail("--config names the settings and --isolated leaves all out: choose one.")
    if file is not None and not file.is_file():
        fail(f"--config {file}: no such file.")
    os.environ[CONFIG] = os.devnull if file is None else str(file.resolve())
    nearest_section.cache_clear()
    selection.configured_at.cache_clear()


def _parts(scripts: list[Path], came: dict[Path, Checked]) -> set[Path]:
    """The modules that `convert` edits for a script that imports them: alone they show less than they are."""
    places = {path.resolve(): path for path in scripts}
    parts: set[Path] = set()
    for path in scripts:
        edited = {Path(one.path).resolve() for one, _ in came[path].findings if one.fixable}
        for place in edited & places.keys() if path not in parts else ():
            other = places[place]
            started = may_be_started(files_read.read(place) or b"")
            if other != path and not started and not came[other].problem:
                parts.add(other)
    return parts


def _tried(done: Checked) -> Checked:
    """The findings that `--fix` has left: a safe fix of one of these would bring another finding, and is none."""
    left = [(replace(one, fix="" if one.fix == "safe" else one.fix), line) for one, line in done.findings]
    return replace(done, findings=left)


def _is_plain(done: Checked) -> bool:
    """Whether a script runs on one device as it is, and `convert` rewrites it for several."""
    return any(one.fixable and CREATED in (one.code, one.part) for one, _ in done.findings)


def _inputs(paths: list[Path], exclude: list[str], forced: bool, cache: Cache | None) -> Inputs:
    from accelify.cli.excluded import leave_out

    inputs = collect(paths, need_scripts=False, cache=cache)
    leave_out(inputs, exclude, forced)
    return inputs


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
    if output_format is OutputFormat.RDJSON:
        from accelify.report.rdjson import findings_rdjson

        return findings_rdjson(findings)
    if output_format is OutputFormat.SARIF:
        from accelify.report.sarif import findings_sarif
        from accelify.rules import all_rules, rule_page

        pages = {code: (entry.rule.summary, rule_page(entry)) for code, entry in all_rules().items()}
        return findings_sarif(findings, pages)
    colour, total = to_terminal and coloured(sys.stdout), terminal.amount != terminal.QUIET
    if output_format is OutputFormat.CONCISE:
        from accelify.report.text import findings_list

        return findings_list(findings, colour=colour, total=total)
    from accelify.report.marked import findings_marked

    width = terminal.width(sys.stdout) if to_terminal else 0
    return findings_marked(findings, lines.of, colour=colour, total=total, width=width)


def _write(text: str, file: Path | None) -> None:
    if file is None:
        # Names of files may be no text.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        print(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SourceError(f"{file} cannot be written: {error.strerror or error}.", file) from None
