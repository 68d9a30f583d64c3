"""`accelify test`: the bundled self-test on the configured set-up."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from accelify.cli.terminal import NEEDS_A_PERSON, coloured, fail, print_rows
from accelify.installing import install_command

# Options that are not its own go to launch.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_MARKS = {True: ("works", "32"), False: ("FAILS", "31"), None: ("not tried", "33")}
_CHECKS = (
    "processes", "collectives", "metrics count every sample once", "losses equal plain torch", "checkpoint",
    "saved weights load in plain torch",
)  # fmt: skip


def test(
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LAUNCH-OPTIONS...", help="As for launch: --config_file, --num_processes, --cpu, ..."
        ),
    ] = None,  # noqa: PT028, a command and no test
) -> None:
    """Try the configured set-up: start its processes, train a small network, and print what works.

    On several machines run it on each of them, as the job would be started. The losses are compared with those of plain
    torch, a checkpoint is written and read, and saved weights are loaded into plain torch.
    """
    found = importlib.util.find_spec("torch") and importlib.util.find_spec("accelify.runtime.launch.selftest")
    if not found or found.origin is None:
        fail(f"the self-test needs torch, which is not installed: {install_command('runtime')}.")
    with tempfile.TemporaryDirectory(prefix="accelify-test-") as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", "accelify", "launch", *(options or []), found.origin, str(results)]
        try:
            done = subprocess.run(command, check=False)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None  # the launch has said so
        if not results.exists():
            if done.returncode == 0:
                print("This machine's processes came to their end; the first machine prints what works.")
            raise typer.Exit(done.returncode)
        rows = json.loads(results.read_text())
    _print(rows)
    contained = done.returncode == 0 and all(row[1] for row in rows)
    if not contained and all(row[1] for row in rows):
        print(f"The processes ended with status {done.returncode} afterwards.")
    raise typer.Exit(0 if contained else NEEDS_A_PERSON)


def _print(rows: list[tuple[str, bool, str]]) -> None:
    found: dict[str, tuple[bool | None, str]] = {
        name: (contained, stated) for name, contained, stated in rows
    }
    if all(row[0] in _CHECKS for row in rows):
        found = {name: found.get(name, (None, "")) for name in _CHECKS}
    marks = [_MARKS[contained] for contained, _ in found.values()]
    shown = [(name, mark, found[name][1]) for name, (mark, _) in zip(found, marks, strict=True)]
    print_rows(shown, colours=[colour for _, colour in marks] if coloured(sys.stdout) else ())
