"""`accelify verify`: run a script before and after conversion and compare the losses."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from accelify.cli.inputs import Runtime


def verify(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The plain script, not converted yet.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS...", help="Handed to the script as they are.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps of each run.")] = 20,
    num_processes: Annotated[
        int,
        typer.Option("--num_processes", "--num-processes", "-n", min=1, help="Processes of the second run."),
    ] = 2,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE", help="Compare with this converted script instead of a fresh one."
        ),
    ] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="What the copy is written for; see `accelify convert --help`.")
    ] = Runtime.ACCELIFY,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the losses into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Run on the devices that are there, not on the CPU.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed for what the script does not seed itself.")] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Give a run up after this long.")
    ] = 600.0,
) -> None:
    """Run SCRIPT as it is and a converted copy of it, and compare every loss, the learning rates and the weights.

    The copy runs on one process and on several, with each batch split between them. Nothing is written beside the
    script. Exit codes: 0 equal or not comparable, 1 different or refused, 2 bad usage or a script that does not run.
    """
    from rich.console import Console

    from accelify.cli.terminal import coloured, fail
    from accelify.source import SourceError
    from accelify.verify import show
    from accelify.verify.session import Converted, VerifyError
    from accelify.verify.session import verify as run

    # An end from outside takes the same road as Ctrl-C: every process ended, every temporary folder removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    errors = Console(stderr=True)
    status = errors.status("") if errors.is_terminal and not as_json else None
    try:
        if plot is not None:
            show.check_plot(plot)
        converted = None
        if against is not None:
            converted = Converted(files={script.resolve(): _read(against)})
        _read(script)
        with status or contextlib.nullcontext():
            report = run(
                script,
                tuple(arguments or ()),
                converted=converted,
                runtime=runtime.value,
                steps=steps,
                processes=num_processes,
                gpu=gpu,
                seed=seed,
                limit=timeout,
                progress=lambda what: status.update(f"running {what}") if status else None,
            )
        if plot is not None and report.original is not None:
            show.plot(report, plot)
    except (VerifyError, SourceError) as error:
        fail(str(error))
    if as_json:
        print(json.dumps(_plain(report.to_json()), indent=2, allow_nan=False))
    else:
        wide = None if sys.stdout.isatty() else 140
        show.print_report(report, Console(width=wide, no_color=not coloured(sys.stdout)))
    raise typer.Exit(report.exit_code)


def _read(path: Path) -> bytes:
    from accelify.source import Source, SourceError

    if path.suffix == ".ipynb":
        raise SourceError(
            f"{path} is a notebook, and verify runs scripts: export it with "
            f"`jupyter nbconvert --to script {path.name}`.",
            path,
        )
    source = Source.read(path)
    _ = source.tree
    return source.encode()


def _plain(value: Any) -> Any:
    """`value` with null for what JSON has no number for: infinities and NaN."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
