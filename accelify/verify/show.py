"""A verification for people: the table, what it means, and the plot."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from accelify.verify.compare.losses import Comparison, Verdict
from accelify.verify.session import Report, VerifyError

if TYPE_CHECKING:
    from rich.console import Console

NO_MATPLOTLIB = "--plot needs matplotlib: pip install 'accelify[plot]'."
_COLOURS = {
    Verdict.IDENTICAL: "green",
    Verdict.ROUNDING: "green",
    Verdict.NOT_COMPARABLE: "yellow",
    Verdict.DIFFERENT: "red",
    Verdict.FAILED: "red",
}
_LEFT_SHOWN = 10
_FORMATS = (".png", ".svg", ".pdf")
_REPEATED = "{name}: every process does the whole work: the numbers are right, but nothing is shared out"


def print_report(report: Report, console: Console) -> None:
    """The table, then one line for each run that says what its verdict rests on."""
    from rich.table import Table
    from rich.text import Text

    if report.converted.refused:
        _say(
            console,
            f"{report.script} was not converted, so there is nothing to compare: {report.converted.refused}",
        )
        return
    if report.original is None:
        _say(console, f"{report.script} was not run: {report.converted.unchanged}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (
        "run",
        "steps",
        "first loss",
        "last loss",
        "largest difference",
        "lr",
        "weights",
        "time",
        "verdict",
    ):
        table.add_column(title, no_wrap=title != "verdict")
    original = report.original
    table.add_row("original, 1 process", str(original.steps), *_ends(original.losses), "", "", "",
                  f"{original.seconds:.1f} s", "")  # fmt: skip
    for comparison in report.comparisons:
        run = comparison.run
        count = f"{run.processes} process{'es' if run.processes > 1 else ''}"
        verdict = Text(str(comparison.verdict), style=_COLOURS[comparison.verdict])
        shown = [
            str(run.steps),
            *_ends(run.losses),
            _largest(comparison),
            _rates(comparison),
            _weights(comparison),
        ]
        if comparison.verdict is Verdict.FAILED:
            shown[3:] = ["", "", ""]
        table.add_row(f"{run.label}, {count}", *shown, f"{run.seconds:.1f} s", verdict)
    console.print(table)
    if report.cuda_as_cpu:
        _say(
            console,
            "The script asks for a CUDA device outright; the CPU took its place in every run (see --gpu).",
        )
    if report.converted.modernised:
        _say(
            console,
            "Python does not parse the original's `async=` any more: it was run with `non_blocking=` in its place.",
        )
    for comparison in report.comparisons:
        for line in explain(comparison):
            _say(console, line)
    if report.within_first_epoch:
        _say(
            console,
            f"{original.steps} steps end within the first epoch: what comes after an epoch (schedules, evaluation) was "
            "not reached; give more --steps",
        )
    left = report.converted.remaining
    if left:
        _say(console, f"The converter left {len(left)} place{'s' if len(left) > 1 else ''} for a person:")
        for line in left[:_LEFT_SHOWN]:
            _say(console, f"  {line}")
        if len(left) > _LEFT_SHOWN:
            _say(console, f"  and {len(left) - _LEFT_SHOWN} more; `accelify check` lists them")


def explain(comparison: Comparison) -> list[str]:
    """What the verdict rests on, and the first call of backward that differs; nothing for identical runs."""
    run = comparison.run
    name = f"{run.label} on {run.processes} process{'es' if run.processes > 1 else ''}"
    verdict = comparison.verdict
    if verdict is Verdict.IDENTICAL:
        return [_REPEATED.format(name=name)] if run.repeated else []
    if verdict is Verdict.ROUNDING:
        update = (
            f"; weights {comparison.update:.1e} of their way apart" if comparison.update is not None else ""
        )
        if not comparison.largest_at:
            return [f"{name}: equal to rounding: losses identical{update}"]
        first = f", first at call {comparison.first.number}" if comparison.first else ""
        return [
            f"{name}: equal to rounding: relative difference of the losses at most {comparison.largest:.1e} (call "
            f"{comparison.largest_at} of backward, tolerance {comparison.tolerance:.1e}{first}){update}"
        ]
    lines = [f"{name}: {verdict}: {comparison.reason}"]
    if comparison.quiet is not None and comparison.quiet.verdict in (Verdict.IDENTICAL, Verdict.ROUNDING):
        quiet = comparison.quiet
        lines.append(
            f"  with that taken out of both runs: {quiet.verdict} (losses within {quiet.largest:.1e}, "
            f"tolerance {quiet.tolerance:.1e})"
        )
        return lines
    if comparison.first is not None and comparison.first.sentence() not in comparison.reason:
        lines.append(f"  first difference: {comparison.first.sentence()}")
    if verdict is Verdict.FAILED and run.losses:
        lines.append(f"  it got as far as call {len(run.losses)} of backward")
    return lines


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _ends(losses: list[float]) -> tuple[str, str]:
    return (f"{losses[0]:.6g}", f"{losses[-1]:.6g}") if losses else ("none", "none")


def _largest(comparison: Comparison) -> str:
    if not comparison.largest_at:
        return "0"
    return f"{comparison.largest:.1e} (call {comparison.largest_at})"


def _rates(comparison: Comparison) -> str:
    return "same" if comparison.same_rates else "differs"


def _weights(comparison: Comparison) -> str:
    if comparison.same_weights:
        return "same"
    return "differ" if comparison.update is None else f"{comparison.update:.1e} apart"


def check_plot(path: Path) -> None:
    """Raises VerifyError, before anything is run, where matplotlib, the folder or the format is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise VerifyError(NO_MATPLOTLIB)
    if path.suffix.lower() not in _FORMATS:
        raise VerifyError(f"--plot {path}: give the file one of the endings {', '.join(_FORMATS)}.")
    if not path.parent.is_dir():
        raise VerifyError(f"--plot {path}: there is no folder {path.parent}.")


def plot(report: Report, path: Path) -> None:
    """Draw the losses of all runs, and below how far each is from the original, into `path` (PNG, SVG or PDF).

    Raises:
        VerifyError: the file cannot be written.
    """
    os.environ.setdefault("MPLBACKEND", "Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from accelify.verify.compare.losses import relative_differences

    assert report.original is not None
    original = report.original.losses
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.plot(
        range(1, len(original) + 1), original, "C0", label="original, 1 process", linewidth=3, alpha=0.5
    )
    for comparison, style in zip(report.comparisons, ("C1--", "C2:"), strict=False):
        losses = comparison.run.losses
        label = f"{comparison.run.label}, {comparison.run.processes}: {comparison.verdict}"
        above.plot(range(1, len(losses) + 1), losses, style, label=label)
        differences = [
            d if d > 0 and math.isfinite(d) else math.nan for d in relative_differences(original, losses)
        ]
        below.plot(range(1, len(differences) + 1), differences, style, marker=".")
    below.plot(
        range(1, len(report.tolerances) + 1), report.tolerances, color="grey", linewidth=1, label="tolerance"
    )
    below.set_yscale("log")
    above.set_ylabel("loss")
    below.set_ylabel("relative difference")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xlabel("call of backward")
    above.set_title(report.script.name)
    above.legend()
    below.legend(fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise VerifyError(f"The plot cannot be written to {path}: {error}.") from None
