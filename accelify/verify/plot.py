"""The losses of all runs as a picture."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path

from accelify.installing import install_command
from accelify.verify.compare.losses import relative_differences
from accelify.verify.session import Report, VerifyError

_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raises VerifyError, before anything is run, where matplotlib, the folder or the format is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise VerifyError(f"--plot needs matplotlib: {install_command('plot')}.")
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

    assert report.original is not None
    original = report.original.losses
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.plot(
        range(1, len(original) + 1), original, "C0", label="original, 1 process", linewidth=3, alpha=0.5
    )
    for number, comparison in enumerate(report.columns):
        style = f"C{number + 1}{('--', ':', '-.')[number % 3]}"
        losses = comparison.run.losses
        label = f"{comparison.run.label}, {comparison.run.title}: {comparison.overall}"
        above.plot(range(1, len(losses) + 1), losses, style, label=label)
        reference = comparison.reference.losses if comparison.reference else original
        if reference != original:
            # What it is compared with: the original on the batches that so many processes make together.
            label = f"original, on the batches of {comparison.run.title}"
            places = range(1, len(reference) + 1)
            above.plot(places, reference, f"C{number + 1}", label=label, linewidth=3, alpha=0.3)
        differences = [
            d if d > 0 and math.isfinite(d) else math.nan for d in relative_differences(reference, losses)
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
