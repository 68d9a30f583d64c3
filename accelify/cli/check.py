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
        bool, typer.Option("--force-exclude", help="Leave out what is named on the command line, too.")
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
        bool, typer.Option("--add-ignores", help="Write a comment that silences it at each finding's line.")
    ] = False,
    show_files: Annotated[
        bool, typer.Option("--show-files", help="Show which scripts would be looked at, and end.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take [tool.accelify] from this file alone.", envvar=CONFIG),
    ] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Leave all configuration files out.")] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show how many findings each rule has.")
    ] = False,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither use nor write what was found before.")
    ] = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to remember what was found.", envvar="ACCELIFY_CACHE_DIR"),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Fix what is safe to fix, in scripts that use several processes.")
    ] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Make also fixes that may change what a script does.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Check again whenever a file changes.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="End with 0 also where findings are.")
    ] = False,
) -> None:
    """Lint training scripts: what goes wrong in them, or keeps them from running, on several devices.

    Where nothing is found a terminal gets one line, a pipe none. Findings marked [*] are fixed by `accelify convert`;
    of a folder's scripts for one device only their number is given (-v lists them). Scripts that use an Accelerator or
    torch.distributed are gone through as each process would run them.

    A comment `# accelify: ignore[ACC702]` in the script and [tool.accelify] in pyproject.toml leave findings out.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    run_check(given.pop("paths", None) or [Path()], Options(**given))
