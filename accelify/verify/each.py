"""Many scripts verified one after another, from a list, with one table at the end.

FOLDER/runs.tsv has a line for each run, its columns separated by tabs, the first line naming them: `script` (from
FOLDER) and, where wanted, `arguments`, `folder` (where it is run from), `stand_ins` (a folder of modules that are found
first), `steps`, `batch_size` and `note`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelify.source import SourceError
from accelify.verify.compare.verdict import ASPECTS, WRONG
from accelify.verify.session import VerifyError, verify
from accelify.verify.show import COLOURS, TITLES, demands, explain
from accelify.verify.subject import find_subject

LIST = "runs.tsv"


@dataclass
class Row:
    """What became of one line: a verdict by kind of run (`2 processes`), the aspects that are wrong, the reasons."""

    script: str
    note: str
    verdicts: dict[str, str]
    wrong: list[str]
    reasons: list[str]

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "script": self.script,
            "note": self.note,
            "verdicts": self.verdicts,
            "wrong": self.wrong,
            "reasons": self.reasons,
        }


def verify_each(folder: Path, counts: tuple[int, ...], *, steps: int, limit: float, as_json: bool) -> int:
    """Verify every script of a folder's list and print one table; returns the worst exit code.

    Args:
        folder: where `runs.tsv` is.
        counts: numbers of processes.
        steps: optimizer steps of each run, where the list does not say.
        limit: seconds that an original may take.
        as_json: print the rows as JSON.

    Raises:
        VerifyError: there is no list, or it has no column `script`.
    """
    rows, codes = [], []
    for line in _lines(folder):
        row, code = _run(folder, line, counts, steps, limit)
        rows.append(row)
        codes.append(code)
        if not as_json:
            shown = ", ".join(f"{on}: {verdict}" for on, verdict in row.verdicts.items())
            print(
                f"{row.script} {row.note}".strip() + f": {shown or row.reasons[0]}",
                file=sys.stderr,
                flush=True,
            )
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        _print(rows)
    return 1 if 1 in codes else max(codes, default=2)


def _lines(folder: Path) -> list[dict[str, str]]:
    path = folder / LIST
    try:
        with path.open(newline="") as file:
            lines = [dict(line) for line in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    except OSError as error:
        raise VerifyError(f"--each {folder}: {path} cannot be read: {error.strerror}.") from None
    if not lines or "script" not in lines[0]:
        raise VerifyError(
            f"{path} needs a first line that names the columns, `script` among them, and a line a run."
        )
    return lines


def _run(
    folder: Path, line: dict[str, str], counts: tuple[int, ...], steps: int, limit: float
) -> tuple[Row, int]:
    row = Row(line["script"], line.get("note") or "", {}, [], [])
    script = (folder / line["script"]).resolve()
    working = (folder / line["folder"]).resolve() if line.get("folder") else script.parent
    if not script.exists() or not working.is_dir():
        row.reasons.append(f"{working if script.exists() else script} does not exist: check {LIST}.")
        return row, 2
    with _in_folder(working, line, folder):
        try:
            subject = find_subject(script, None)
            report = verify(
                subject.script,
                tuple(shlex.split(line.get("arguments") or "")),
                converted=subject.converted,
                batch_size=line.get("batch_size") or "per-process",
                steps=int(line.get("steps") or steps),
                processes=counts,
                limit=limit,
            )
        except (VerifyError, SourceError) as error:
            row.reasons.append(str(error))
            return row, 2
    for comparison in report.columns:
        row.verdicts[comparison.run.title] = str(comparison.overall)
        aspects = comparison.aspects()
        row.wrong += [
            TITLES[aspect]
            for aspect in ASPECTS
            if aspects.get(aspect) in WRONG and TITLES[aspect] not in row.wrong
        ]
        row.reasons += explain(comparison, report.converted.lines())
    if any(one.fails for one in report.settled):
        row.wrong.append("demands not proved")
    row.reasons += demands(report)
    if not report.comparisons:
        row.reasons.append(report.converted.refused or report.converted.unchanged)
    return row, report.exit_code


@contextlib.contextmanager
def _in_folder(working: Path, line: dict[str, str], folder: Path) -> Iterator[None]:
    """Work in the run's folder, where modules that replace others are found first."""
    before, path = Path.cwd(), os.environ.get("PYTHONPATH")
    os.chdir(working)
    if stand_ins := line.get("stand_ins"):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str((folder / stand_ins).resolve()), path]))
    try:
        yield
    finally:
        os.chdir(before)
        if path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = path


def _print(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = dict.fromkeys(on for row in rows for on in row.verdicts)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("script", overflow="fold")
    for on in shown:
        table.add_column(on, no_wrap=True)
    table.add_column("wrong", overflow="fold")
    for row in rows:
        cells = [row.verdicts.get(on, "not run") for on in shown]
        styles = {str(verdict): style for verdict, style in COLOURS.items()}
        table.add_row(
            f"{row.script} {row.note}".strip(),
            *(Text(cell, style=styles.get(cell, "dim")) for cell in cells),
            ", ".join(row.wrong),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)
