"""`accelify verify`: run a script before and after conversion and compare everything that can be seen."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelify.cli import terminal
from accelify.cli.convert import BatchSize
from accelify.cli.inputs import Runtime
from accelify.cli.terminal import coloured, complain, fail
from accelify.installing import install_command

if TYPE_CHECKING:
    from accelify.verify.session import Report

NOTHING_VERIFIED = 2
# Options that are not this command's are most likely the script's: they get a hint, not a parser's error.
CONTEXT_SETTINGS = {"ignore_unknown_options": True}
_WIDTH = 140
"""Columns of what is not shown on a terminal."""


def verify(
    script: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCRIPT",
            help="The plain script or notebook, or a converted one whose plain version git has.",
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS...", help="Passed to the script as they are.")
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", "--module", metavar="NAME", help="Run this module, as python -m does.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps of each run.")] = 20,
    num_processes: Annotated[
        str,
        typer.Option(
            "--num_processes",
            "--num-processes",
            "-n",
            metavar="N[,N...]",
            help="Numbers of processes to run the converted script on, beside 1.",
        ),
    ] = "2",
    batch_size: Annotated[
        BatchSize, typer.Option(help="How the script is converted; see `accelify convert --help`.")
    ] = BatchSize.PER_PROCESS,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="The script to compare with: a conversion of SCRIPT, or its original.",
        ),
    ] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="What the script is converted for; see `accelify convert --help`.")
    ] = Runtime.ACCELIFY,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the losses into this file.")
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Also write the result as an HTML page."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    each: Annotated[
        Path | None,
        typer.Option(
            "--each",
            metavar="FOLDER",
            help="Verify every script listed in FOLDER/runs.tsv, and print one table.",
        ),
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Run on the GPUs of this machine, not on its CPU.")
    ] = False,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Let the runs use the network, which is closed otherwise.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed for what the script does not seed itself.")] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Stop a run that takes longer.")
    ] = 600.0,
) -> None:
    """Run SCRIPT as it is and converted, on one process and on several, and compare everything that can be seen.

    Losses, learning rates, steps, samples, weights, printed and logged figures, files, decisions, side effects: one
    verdict each. The runs change no file outside of temporary folders. Exit codes: 0 all is equal or not comparable, 1
    something is different or the processes share no work, 2 nothing could be verified.
    """
    from rich.console import Console

    from accelify.verify import NO_TORCH

    if importlib.util.find_spec("torch") is None:
        fail(f"{NO_TORCH}: {install_command('runtime')}.")
    from accelify.source import SourceError
    from accelify.verify import plot as drawing
    from accelify.verify import show
    from accelify.verify.live import Live
    from accelify.verify.session import VerifyError
    from accelify.verify.session import verify as run
    from accelify.verify.subject import find_module, find_subject

    # An end from outside takes the same way as Ctrl-C: every process ended, every temporary folder removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _only_after_dashes(script, arguments or [], module)
    counts = _counts(num_processes)
    if each is not None:
        raise typer.Exit(_each(each, counts, steps=steps, timeout=timeout, as_json=as_json))
    words = list(arguments or ())
    if module is not None and script is not None:
        # The first word after -m NAME belongs to the module.
        words.insert(0, str(script))
    errors = Console(stderr=True)
    try:
        if plot is not None:
            drawing.check_plot(plot)
        place = find_module(module) if module else script
        if place is None:
            fail("Name the script to verify, or a module with -m.")
        named = place.suffix not in (".py", ".ipynb") and re.fullmatch(
            r"[^\W\d]\w*(\.[^\W\d]\w*)*", str(place)
        )
        if module is None and named and not place.exists():
            fail(f"there is no file {place}; a module's name goes after -m: `accelify verify -m {place}`.")
        subject = find_subject(place, against)
        spinning = errors.is_terminal and not as_json and terminal.amount == terminal.NORMAL
        with Live(errors, spinning, terminal.amount == terminal.VERBOSE) as live:
            report = run(
                subject.script,
                tuple(words),
                converted=subject.converted,
                runtime=runtime.value,
                batch_size=batch_size.value,
                steps=steps,
                processes=counts,
                gpu=gpu,
                seed=seed,
                limit=timeout,
                allow_network=allow_network,
                module=module or "",
                progress=live,
            )
        if plot is not None and report.original is not None:
            drawing.plot(report, plot)
        if report_file is not None:
            _write_page(report, report_file)
    except (VerifyError, SourceError) as error:
        complain(str(error))
        raise typer.Exit(NOTHING_VERIFIED) from None
    if as_json:
        print(json.dumps(plain(show.as_data(report)), indent=2, allow_nan=False))
    elif terminal.amount == terminal.QUIET and report.columns:
        for comparison in report.columns:
            print(f"{comparison.run.title}: {comparison.overall}")
    else:
        wide = None if sys.stdout.isatty() else _WIDTH
        show.print_report(report, Console(width=wide, no_color=not coloured(sys.stdout)))
    drawn = plot if report.original is not None else None
    terminal.say_written(drawn, report_file)
    raise typer.Exit(report.exit_code)


def _only_after_dashes(script: Path | None, words: list[str], module: str | None) -> None:
    """End the command where a word that looks like an option, or another script, stands before `--`."""
    afterwards = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    # After -m NAME the first word of the module's stands in the script's place.
    given = [*([str(script)] if script is not None else []), *words]
    given = given[: len(given) - len(afterwards)]
    for word in given:
        if word.startswith("-") and word != "-":
            is_file = [name for name in given if name.endswith((".py", ".ipynb"))]
            named = is_file[0] if is_file else "SCRIPT"
            if module is None and named in given:
                given.remove(named)
            line = shlex.join([*(["-m", module] if module else [named]), "--", *given, *afterwards])
            fail(
                f"no such option: {word}. The script's own arguments go after --, as in "
                f"`accelify verify {line}`; `accelify verify --help` has this command's."
            )
    further = [word for word in words[: len(words) - len(afterwards)] if word.endswith((".py", ".ipynb"))]
    if module is None and further and Path(further[0]).is_file():
        fail(
            f"one script at a time: `accelify verify {script}`, then `accelify verify {further[0]}`. If "
            f"{further[0]} is an argument of {script}, it goes after --."
        )


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        fail(f"--num-processes (-n) is {text!r}: give a number of processes, or several as in 1,2,4.")
    return counts


def _write_page(report: Report, path: Path) -> None:
    from accelify.source import write_all
    from accelify.verify.page import page

    write_all([(path, page(report).encode())])


def _each(folder: Path, counts: tuple[int, ...], *, steps: int, timeout: float, as_json: bool) -> int:
    from accelify.verify.each import verify_each
    from accelify.verify.session import VerifyError

    try:
        return verify_each(folder, counts, steps=steps, limit=timeout, as_json=as_json)
    except VerifyError as error:
        complain(str(error))
        return NOTHING_VERIFIED


def plain(value: Any) -> Any:
    """`value` with null for what JSON has no number for: infinities and NaN."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
