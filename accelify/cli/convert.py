"""`accelify convert`: rewrite training scripts, in place or elsewhere, or show what would be done."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from accelify.cli import terminal
from accelify.cli.excluded import leave_out
from accelify.cli.inputs import PART, STDIN, Inputs, Runtime, collect, garbage_left, read_script
from accelify.cli.terminal import (
    BAD_INPUT,
    CONVERTED,
    NEEDS_A_PERSON,
    coloured,
    complain,
    fail,
    followed,
    write_bytes,
)
from accelify.marks import mark
from accelify.source import SourceError, make_folder, read_bytes, write_all

if TYPE_CHECKING:
    from accelify.conversion import Conversion, ConvertOptions, GatheredConversions
    from accelify.obligations import Validation
    from accelify.project import Imports


class BatchSize(StrEnum):
    """What the script's batch size means on several processes."""

    PER_PROCESS = "per-process"
    TOTAL = "total"


def convert(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Scripts or folders; - reads a script from standard input."),
    ],
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print what would change.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="Write to this file or folder (with imported modules), not in place; - prints the script.",
        ),
    ] = None,
    batch_size: Annotated[
        BatchSize,
        typer.Option(help="Each process takes the script's batch size, or all of them share it."),
    ] = BatchSize.PER_PROCESS,
    runtime: Annotated[
        Runtime, typer.Option(help="Write for accelify's own runtime or for Hugging Face Accelerate.")
    ] = Runtime.ACCELIFY,
    replace_ddp: Annotated[
        bool,
        typer.Option("--replace-ddp", help="Also convert scripts that use DistributedDataParallel by hand."),
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Files or folders to leave out, beside those that Git ignores."),
    ] = None,
    no_respect_gitignore: Annotated[
        bool, typer.Option("--no-respect-gitignore", help="Take the files of a folder that Git ignores, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write an HTML page with both versions side by side."),
    ] = None,
    assumptions: Annotated[
        bool,
        typer.Option(
            "--assumptions",
            help="Also say what is proved of the converted scripts, what is not, and what the proofs assume.",
        ),
    ] = False,
    verified: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json",
            help="A file with the output of `verify --json`: its loss curves go on the page of --report.",
        ),
    ] = None,
) -> None:
    """Rewrite training scripts so that they run on any number of devices.

    On one process the losses stay the same to the bit. On N processes each takes the script's batch size: N times the
    batch, 1/N of the steps. With --batch-size total they share the script's batch: the same steps, the same losses.

    Scripts are written in place: all of them, or none if one cannot be written. A script of a folder that cannot be
    read is left out, with a message and exit code 1; one that you name yourself ends the run. What needs a person is
    left as it was and listed in the summary.
    """
    from accelify.conversion import ConvertOptions

    options = ConvertOptions(batch_size=batch_size.value, runtime=runtime.value, replace_ddp=replace_ddp)
    if replace_ddp and batch_size is BatchSize.TOTAL:
        fail(
            "--replace-ddp keeps a script's batch size, which is one process's: leave out --batch-size total."
        )
    if verified and report is None:
        fail("--verified puts curves on the page of --report: name that page too.")
    if STDIN in paths:
        if len(paths) > 1 or output not in (None, "-"):
            fail(
                "- (standard input) goes alone, and to standard output: leave out the other paths and --output."
            )
        raise typer.Exit(
            _filter(
                options, diff=diff, json=json, report=report, verified=verified or [], assumptions=assumptions
            )
        )
    if diff and output is not None:
        fail("--diff writes nothing: leave out --output.")
    if json and output == "-":
        fail("--json and --output - would both print to standard output: leave out one of them.")
    try:
        inputs = collect(paths)
        leave_out(inputs, exclude or [], ignored=not no_respect_gitignore)
        if output == "-" and len(inputs.scripts) > 1:
            fail("--output - takes one script: name a folder with --output for several.")
        conversions, passed_over = _convert_all(inputs, options)
        if output == "-" and len(conversions) > 1:
            others = ", ".join(str(conversion.source.path) for conversion in conversions[1:])
            fail(
                f"--output - takes one script, and this one is converted together with {others}: name a folder."
            )
        proofs = _proofs(conversions, inputs)
        conversions = [conversion.published() for conversion in conversions]
        mark(conversions)
        files: list[tuple[Path, bytes]] = []
        targets: Mapping[Path, Path] = {}
        if output == "-":
            for conversion in conversions:
                write_bytes(conversion.source.encode(conversion.new_text))
            targets = {path: path for path in inputs.scripts}
        elif not diff:
            targets = _targets(conversions, inputs, output)
            files += _files(conversions, targets)
            if output is not None:
                files += _copies(inputs, targets, dict(files), Path(output))
        write_all([*_page(report, conversions, targets, verified or [], written=not diff), *files])
    except SourceError as error:
        fail(str(error))
    if not json and terminal.amount != terminal.QUIET:
        from accelify.report.style import wrapped

        for line in inputs.describe_search():
            print(wrapped(line, terminal.width(sys.stderr)), file=sys.stderr)
    # A diff or a script alone goes to standard output, so that it can be piped on; the summary goes beside it.
    stream = sys.stderr if diff or output == "-" else sys.stdout
    shown = proofs if assumptions else {}
    # Scripts that distribute themselves have the batch size of one process already.
    several = "" if replace_ddp else batch_size.value
    _report(conversions, shown, diff=diff, json=json, stream=stream, batch_size=several, targets=targets)
    terminal.say_written(report)
    raise typer.Exit(max(exit_code(conversions), NEEDS_A_PERSON if passed_over else CONVERTED))


def exit_code(conversions: Sequence[Conversion]) -> int:
    """0 where every script is converted or has nothing to do, 1 where something is left for a person."""
    for conversion in conversions:
        if conversion.status in ("refused", "failed") or conversion.left:
            return NEEDS_A_PERSON
    return CONVERTED


def _convert_all(inputs: Inputs, options: ConvertOptions) -> tuple[list[Conversion], int]:
    """Convert without writing: the conversions, and how many scripts of a folder were passed over as unreadable.

    Raises SourceError where a script that the user named cannot be worked on.
    """
    inputs.imports.converting = {path.resolve() for path in inputs.scripts}
    gathered, unread = _convert_each(inputs, options)
    while left := gathered.left_as_they_are(inputs.imports.converting):
        # They call what they have called before: that has to go on to fit.
        inputs.imports.converting -= left
        gathered, unread = _convert_each(inputs, options)
    for error in unread:
        complain(str(error))
    return gathered.conversions, len(unread)


def _convert_each(inputs: Inputs, options: ConvertOptions) -> tuple[GatheredConversions, list[SourceError]]:
    from accelify.conversion import GatheredConversions
    from accelify.convert import convert_project

    gathered = GatheredConversions()
    unread: list[SourceError] = []
    started: list[Path] = []
    aside: list[list[Conversion]] = []
    for path in followed(inputs.scripts, len(inputs.scripts), "converting"):
        if gathered.has(path):
            continue
        try:
            with garbage_left():
                group = convert_project(read_script(path), options, inputs.imports)
        except SourceError as error:
            if path in inputs.named:
                raise
            unread.append(error)
            continue
        if path not in inputs.named and group[0].status == "unchanged":
            # A folder's script that only looked like an entry point.
            aside.append(group)
            group = [c for c in group if ".backward(" in c.source.text]
        status = group[0].status if group else ""
        if path not in inputs.named and status == "refused" and inputs.is_part_of(path, started):
            inputs.left_out[path] = PART  # it was looked at with the script that it belongs to
            continue
        if status in ("converted", "refused"):
            started.append(path)
        for conversion in group:
            inputs.roots.setdefault(conversion.source.path or path, inputs.roots[path])
        gathered.add(group)
    for folder, entries in inputs.entries.items():
        # Those that turned out to train, where any of them did.
        inputs.entries[folder] = [path for path in entries if path in started] or entries
    for group in aside if not gathered.conversions else ():
        gathered.add(group)
    return gathered, unread


def _targets(conversions: Sequence[Conversion], inputs: Inputs, output: str | None) -> dict[Path, Path]:
    """Where each script goes. Raises SourceError where two of them would go to one place."""
    sources = [conversion.source.path for conversion in conversions if conversion.source.path is not None]
    if output is None:
        return {source: source for source in sources}
    # As `cp` has it: one script goes to a file of that name, unless it is a folder or ends like one.
    is_folder = Path(output).is_dir() or output.endswith(("/", os.sep))
    if (suffix := Path(output).suffix) in (".py", ".ipynb") and not is_folder:
        if len(inputs.scripts) > 1 or inputs.searched:
            raise SourceError(
                f"--output {output} is the name of a script, and a folder is needed: name one, as in converted/.",
                sources[0],
            )
        if unlike := [source for source in sources if source.suffix != suffix]:
            raise SourceError(
                f"--output {output}: a {unlike[0].suffix} file stays one; give a name that ends so.",
                unlike[0],
            )
    is_new_folder = len(sources) > 1 and not suffix
    if len(paths := inputs.scripts) == 1 and paths[0] in inputs.named and not (is_folder or is_new_folder):
        if len(sources) > 1:
            raise SourceError(
                f"{paths[0]} is converted together with {sources[1]}: name a folder with --output, as in converted/.",
                sources[1],
            )
        return dict.fromkeys(sources, Path(output))
    targets: dict[Path, Path] = {}
    taken: dict[Path, Path] = {}
    _raise_roots(sources, inputs)
    for source in sources:
        place = (
            source if source.is_relative_to(root := inputs.roots[source]) else inputs.imports.place(source)
        )
        if not place.is_relative_to(root):
            raise SourceError(f"{source} lies outside of {root}: convert the project in place.", source)
        targets[source] = target = Path(output) / place.relative_to(root)
        if (other := taken.setdefault(target, source)) != source:
            raise SourceError(
                f"{other} and {source} would both become {target}: convert them one by one.", source
            )
    return targets


def _raise_roots(sources: Sequence[Path], inputs: Inputs) -> None:
    """Take the folder above that of a script for where names begin, where it imports its own package."""
    from accelify.cli.import_roots import import_root

    for script in inputs.named:
        folder, place = inputs.roots[script], inputs.imports.place(script)
        root = import_root(place, inputs.imports.started_with(script))
        for source in sources if root != place.parent else ():
            if inputs.roots[source] == folder:
                inputs.roots[source] = root


def _files(conversions: Sequence[Conversion], targets: dict[Path, Path]) -> list[tuple[Path, bytes]]:
    files: list[tuple[Path, bytes]] = []
    for conversion in conversions:
        path = conversion.source.path
        if path is None or conversion.status in ("refused", "failed"):
            continue
        target = targets[path]
        if target != path:
            make_folder(target.parent)
        if conversion.changed or target != path:
            files.append((target, conversion.source.encode(conversion.new_text)))
    return files


def _copies(
    inputs: Inputs, targets: Mapping[Path, Path], written: Mapping[Path, bytes], output: Path
) -> list[tuple[Path, bytes]]:
    """The modules that scripts written to a folder import, and that no edit touches: there the scripts would not find
    them."""
    copies: dict[Path, bytes] = {}
    for source, target in targets.items():
        if target not in written or target == output:
            continue
        root = inputs.imports.place(inputs.roots[source])
        for module in inputs.imports.started_with(source):
            if module.is_relative_to(root):
                place = output / module.relative_to(root)
                if place not in written and place not in copies and inputs.imports.place(place) != module:
                    make_folder(place.parent)
                    copies[place] = read_bytes(module)
                    inputs.copied.append(module.relative_to(root).as_posix())
    return list(copies.items())


def _proofs(conversions: Sequence[Conversion], inputs: Inputs) -> dict[str, Validation]:
    """What is proved of each converted script, by its name; what is not stands with its findings from then on.

    Raises SourceError for rows of the user's configuration that make no sense.
    """
    from accelify.proving import entries_of, prove

    found: dict[str, Validation] = {}
    said: set[tuple[str, Path, int]] = set()
    entries = {
        one.source.path or STDIN: one for one in entries_of(conversions, inputs.scripts, inputs.imports)
    }
    for path in followed(entries, len(entries), "proving"):
        with garbage_left():
            found[str(path)] = prove(conversions, entries[path], said=said)
            _name_unread(conversions, entries[path], inputs.imports)
    return found


def _name_unread(conversions: Sequence[Conversion], entry: Conversion, imports: Imports) -> None:
    """Note the options of a script and its modules that decide nothing any more."""
    from accelify.heap.modules import text_of
    from accelify.unread_options import unread_options

    reached = imports.reached(entry.place) if entry.place is not None else []
    known = {one.place: one for one in conversions}
    group = [entry, *(known[path] for path in reached if path in known and path != entry.place)]
    modules: dict[Path | None, str] = {path: text_of(path) or "" for path in reached if path not in known}
    for path, sentence in unread_options(group, modules):
        home = known.get(path, entry)
        if sentence not in home.notes and home.changed:
            home.notes.append(sentence)


def _report(
    conversions: Sequence[Conversion],
    proofs: Mapping[str, Validation],
    *,
    diff: bool,
    json: bool,
    stream: TextIO,
    batch_size: str,
    targets: Mapping[Path, Path],
) -> None:
    if json:
        from accelify.report.json import conversions_json

        print(conversions_json(conversions, proofs=proofs), end="")
        return
    if diff:
        from accelify.report.diff import unified_diff

        for conversion in conversions:
            write_bytes(unified_diff(conversion, colour=coloured(sys.stdout)))
    from accelify.report.text import left_over, summary
    from accelify.report.written import Written

    places = Written(conversions, targets)
    if terminal.amount == terminal.QUIET:
        print(left_over(conversions, places), end="", file=stream)
        return
    said = summary(
        conversions,
        colour=coloured(stream),
        batch_size=batch_size,
        places=places,
        reasons=terminal.amount == terminal.VERBOSE,
        written=not diff,
        width=terminal.width(stream),
    )
    print(said, end="", file=stream)
    if proofs:
        from accelify.report.proofs import proofs_text

        print(proofs_text(list(proofs.items()), colour=coloured(stream)), end="", file=stream)


def _page(
    path: Path | None,
    conversions: Sequence[Conversion],
    targets: Mapping[Path, Path],
    verified: list[Path],
    *,
    written: bool,
) -> list[tuple[Path, bytes]]:
    if path is None:
        return []
    from accelify.report.curves import read_curves
    from accelify.report.html import html_report

    drawn = {script.resolve(): curves for script, curves in map(read_curves, verified)}
    names = [conversion.source.path for conversion in conversions if conversion.source.path is not None]
    curves = {str(name): drawn[name.resolve()] for name in names if name.resolve() in drawn}
    strangers = set(drawn) - {name.resolve() for name in names}
    if names and strangers:
        raise SourceError(
            f"--verified: {min(strangers)} is none of these scripts: run both commands from the same folder.",
            min(strangers),
        )
    return [(path, html_report(conversions, targets=targets, curves=curves, written=written).encode())]


def _filter(
    options: ConvertOptions,
    *,
    diff: bool,
    json: bool,
    report: Path | None,
    verified: list[Path],
    assumptions: bool,
) -> int:
    """Convert standard input to standard output; the summary goes to standard error."""
    from accelify.convert import convert_source

    try:
        with garbage_left():
            conversion = convert_source(read_script(STDIN), options)
        proofs = _proofs([conversion], Inputs())
        conversion = conversion.published()
        mark([conversion])
        write_all(_page(report, [conversion], {}, verified, written=not diff))
        if json:
            from accelify.report.json import conversions_json

            shown = proofs if assumptions else {}
            print(conversions_json([conversion], with_text=True, proofs=shown), end="")
            terminal.say_written(report)
            return exit_code([conversion])
        if not diff:
            write_bytes(conversion.source.encode(conversion.new_text))
    except SourceError as error:
        complain(str(error))
        return BAD_INPUT
    shown = proofs if assumptions else {}
    several = "" if options.replace_ddp else options.batch_size
    from accelify.report.written import STDIN as PRINTED

    targets = {} if diff else {PRINTED: PRINTED}
    _report(
        [conversion], shown, diff=diff, json=False, stream=sys.stderr, batch_size=several, targets=targets
    )
    terminal.say_written(report)
    return exit_code([conversion])
