"""`accelify check`: print what is wrong with training scripts on several devices, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelify.cli.check_run import Options, OutputFormat, run_check
from accelify.configuration import CONFIG


def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Scripts or folders; without any, the current folder. - reads a script from standard input.",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option(help="How findings are printed.")
    ] = OutputFormat.TEXT,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="Rules to show (ACC702, ACC7 or ALL).")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODES", help="Rules not to show.")] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Files or folders to leave out, beside those that Git ignores."),
    ] = None,
    force_exclude: Annotated[
        bool,
        typer.Option(
            "--force-exclude", help="Leave out files that match, even if they are named on the command line."
        ),
    ] = False,
    stdin_filename: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The name of the script on standard input.")
    ] = None,
    only_distributed: Annotated[
        bool, typer.Option("--only-distributed", help="Pass over scripts that are written for one device.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show only what is not accepted in this file.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Accept all findings: write them to the baseline.")
    ] = False,
    add_ignores: Annotated[
        bool,
        typer.Option("--add-ignores", help="Write a comment at the line of each finding that silences it."),
    ] = False,
    show_files: Annotated[
        bool,
        typer.Option("--show-files", help="Print which scripts would be looked at, and do nothing else."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read [tool.accelify] from this file only.", envvar=CONFIG),
    ] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show how many findings each rule has.")
    ] = False,
    output_file: Annotated[
        Path | None,
        typer.Option("--output-file", "-o", metavar="FILE", help="Write the findings to this file."),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Look at every script anew, without the cache.")
    ] = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the cache of findings is.", envvar="ACCELIFY_CACHE_DIR"),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Fix what is safe to fix, in scripts that use several processes.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes", help="With --fix, also make fixes that may change what a script does."
        ),
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Check again whenever a file changes.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with code 0 even if there are findings.")
    ] = False,
) -> None:
    """Lint training scripts: what goes wrong in them, or keeps them from running, on several devices.

    If nothing is found, one line says so on a terminal, and nothing goes to a pipe. Findings marked [*] are fixed by
    `accelify convert`. In a folder, each script that is written for one device gets one line (-v lists its findings).
    Scripts that use an Accelerator or torch.distributed are analysed as each process would run them.

    A comment `# accelify: ignore[ACC702]` in the script, or [tool.accelify] in pyproject.toml, leaves findings out.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    run_check(given.pop("paths", None) or [Path()], Options(**given))
